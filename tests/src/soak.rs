//! Millions of events over real sockets while engines are killed, frozen and restarted and batches are lost: after every
//! fault the index must become exact again, and it is measured how long that takes.
//!
//! Eight emulated engines, each a process of its own with real ZeroMQ sockets, and the real indexer. A step of these
//! engines computes one block, so every event tells of one block; caches are small, so most blocks stored cost an old one.
//! Each engine serves requests, meets a fault, serves some more, and rests until the index equals its cache; engines do so
//! independently of each other, so faults of several overlap.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};

use crate::audit::audit;
use crate::client::Client;
use crate::engine::{Engine, EngineSpec};
use crate::indexer::{self, Indexer, IndexerPorts};

pub mod fault;
mod lane;
pub mod report;

use lane::Lane;
use report::{Recovery, Report};

/// Engines, and so streams.
const ENGINES: usize = 8;

/// One of each form of events and replays: arrays without topic in replays, arrays, maps, and a replay socket that keeps all
/// answers.
const VERSIONS: [&str; 4] = ["0.16", "0.23", "0.32", "0.33"];

/// Blocks of an engine's cache.
const BLOCKS: u32 = 1024;

/// Steps of a microsecond with one block each: the processor is the limit.
const FLAGS: [&str; 4] =
    ["--max-batched-tokens=16", "--step-ms=0.001", "--decode-us=0.001", "--requests-kept=1"];

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Events that the indexer is to read at least.
    pub events: u64,
    /// Of every choice.
    pub seed: u64,
    /// Requests that an engine serves between two faults; each is about 60 events.
    pub requests_between: usize,
    /// Also faults that take longer than a second to be noticed or got over.
    pub has_slow_faults: bool,
}

/// Runs the plan. `dir` takes logs and configuration, and must be there. An error where the index did not become exact.
pub async fn run(plan: &Plan, dir: &Path) -> Result<Report> {
    let engines = (0..ENGINES).map(async |number| {
        let version = VERSIONS.get(number % VERSIONS.len()).copied().unwrap_or_default();
        Engine::start(&format!("engine-{number}"), spec(version), dir).await
    });
    let engines = try_join_all(engines).await?;
    let endpoints: Vec<Value> = engines.iter().map(indexer::endpoint).collect();
    let config = json!({
        "models": [{ "name": MODEL }],
        "endpoints": { "static": endpoints },
        "log": { "level": "warn" },
    });
    let indexer = Indexer::start("indexer", IndexerPorts::claim()?, config, dir).await?;
    let client = Client::default();

    let begun = Instant::now();
    let lanes = engines.into_iter().enumerate().map(|(number, engine)| {
        let random = Pcg64Mcg::seed_from_u64(plan.seed.wrapping_mul(1_000).wrapping_add(number as u64));
        Lane::new(plan, engine, &indexer, client.clone(), random)
    });
    let lanes = try_join_all(lanes.map(async |mut lane| lane.run().await.map(|()| lane))).await?;
    let wall = begun.elapsed();

    let recoveries: Vec<Recovery> = lanes.iter().flat_map(|lane| lane.recoveries.iter().copied()).collect();
    let engines: Vec<Engine> = lanes.into_iter().map(|lane| lane.engine).collect();
    let indexers = [indexer];
    let audited = audit(&engines, &indexers).await.context("at the end")?;
    let [indexer] = indexers;
    let metrics = indexer.metrics().await?;
    let count = |name: &str| metrics.sum(&format!("warmpath_kv_{name}_total"), &[]);
    Ok(Report {
        events: count("events"),
        batches: count("batches_published") + count("batches_replayed"),
        counters: COUNTERS.iter().map(|name| ((*name).to_owned(), count(name))).collect::<BTreeMap<_, _>>(),
        wall,
        recoveries,
        audited,
    })
}

/// What the indexer counted of the faults.
const COUNTERS: [&str; 8] = [
    "gaps",
    "batches_missing",
    "batches_lost",
    "batches_tail",
    "restarts",
    "reconnects",
    "replays",
    "replays_failed",
];

/// Of engines that take prompts as token ids only.
const MODEL: &str = "tiny";

fn spec(version: &str) -> EngineSpec {
    EngineSpec {
        vllm_version: version.to_owned(),
        blocks: BLOCKS,
        speedup: 1.0,
        prefill_tokens_per_second: 1_000_000_000,
        flags: FLAGS.map(str::to_owned).to_vec(),
        ..EngineSpec::new(MODEL, None)
    }
}

/// The longest that an index may take to become exact.
const EXACT_PATIENCE: Duration = Duration::from_secs(60);
