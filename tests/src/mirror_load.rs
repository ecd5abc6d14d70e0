//! What the mirror costs while engines tell of many blocks a second: streams at a fixed rate into the real indexer, without
//! a mirror or with one in a real Redis that saves them as often as said.
//!
//! Publishers with real sockets are in this process. Caches are full before anything is measured: from then on each batch
//! tells of blocks stored and of as many that left. At the end the index must hold what the caches do.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde::Serialize;
use serde_json::{Value, json};

use crate::churn::{Churn, Publisher};
use crate::eventually::{eventually, seen_if};
use crate::indexer::{Indexer, IndexerPorts};
use crate::ports::{LOOPBACK, Port};
use crate::recorder::Recorder;
use crate::redis::Redis;

/// Of engines that take prompts as token ids only.
const MODEL: &str = "tiny";
/// Between two looks at how far behind the indexer is.
const LOOK: Duration = Duration::from_millis(200);

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How long it is measured, with caches that are full.
    pub length: Duration,
    /// Blocks stored in a second, by all streams together.
    pub rate: u64,
    /// Streams.
    pub streams: u64,
    /// Blocks of a batch.
    pub blocks: u64,
    /// Blocks of a cache, about.
    pub cache: u64,
    /// How often the mirror saves, in milliseconds; none: there is none.
    pub interval_ms: Option<u64>,
}

/// What it showed.
#[derive(Debug, Serialize)]
pub struct Row {
    /// As planned.
    pub interval_ms: Option<u64>,
    /// Blocks stored in a second, in fact.
    pub blocks_per_second: f64,
    /// Of a core.
    pub indexer_cpu: f64,
    /// Resident at the end.
    pub indexer_mib: u64,
    /// Of the mirror.
    pub redis: Option<RedisRow>,
    /// From the making of a batch to its reading, of the stream that is most behind, in milliseconds: of half of the
    /// looks, of 99 in 100, of all.
    pub lag_ms: [f64; 3],
}

/// What it cost Redis.
#[derive(Debug, Serialize)]
pub struct RedisRow {
    /// Of a core.
    pub cpu: f64,
    /// Less those that were asked here.
    pub commands_per_second: f64,
    /// That it received.
    pub megabytes_per_second: f64,
    /// That the indexer says it has saved.
    pub images_per_second: f64,
    /// Of memory, at the end.
    pub used_mb: f64,
}

/// What was started. Everything ends with it.
struct Lane {
    churn: Vec<Churn>,
    publishers: Vec<Publisher>,
    indexer: Indexer,
    redis: Option<Redis>,
    /// What answers in place of the engines.
    _engines: Vec<Recorder>,
}

/// What has been spent and done so far.
struct Spent {
    at: Instant,
    told: u64,
    indexer: Duration,
    saves: f64,
    /// CPU, commands, bytes received.
    redis: Option<(Duration, f64, f64)>,
}

/// Runs the plan. `dir` takes logs and configuration, and must be there. An error where the index is not what it must be, or
/// nothing was saved.
pub async fn run(plan: &Plan, dir: &Path) -> Result<Row> {
    let mut lane = Lane::start(plan, dir).await?;
    lane.publishers.iter().for_each(Publisher::begin);
    let full = |lane: &Lane| {
        lane.churn.iter().zip(&lane.publishers).all(|(churn, publisher)| publisher.told() > churn.full_after)
    };
    while !full(&lane) {
        tokio::time::sleep(LOOK).await;
    }
    let before = lane.spent().await?;
    let mut lags = Vec::new();
    while before.at.elapsed() < plan.length {
        tokio::time::sleep(LOOK).await;
        lags.push(lane.lag_ms().await?);
    }
    let after = lane.spent().await?;
    let indexer_mib = lane.indexer.process().resident_bytes()? >> 20;
    let used = match &lane.redis {
        Some(redis) => info(redis, "memory", "used_memory")?,
        None => 0.0,
    };
    lane.all_was_read().await?;
    lags.sort_unstable_by(f64::total_cmp);
    let at =
        |percent: usize| lags.get(lags.len().saturating_sub(1) * percent / 100).copied().unwrap_or(f64::NAN);
    let seconds = (after.at - before.at).as_secs_f64();
    let share = |after: Duration, before: Duration| after.saturating_sub(before).as_secs_f64() / seconds;
    let redis = after.redis.zip(before.redis).map(|(after_redis, before_redis)| RedisRow {
        cpu: share(after_redis.0, before_redis.0),
        commands_per_second: (after_redis.1 - before_redis.1 - 1.0) / seconds,
        megabytes_per_second: (after_redis.2 - before_redis.2) / seconds / 1e6,
        images_per_second: (after.saves - before.saves) / seconds,
        used_mb: used / 1e6,
    });
    if let Some(redis) = &redis {
        ensure!(redis.images_per_second > 0.0, "nothing was saved: {redis:?}");
    }
    Ok(Row {
        interval_ms: plan.interval_ms,
        blocks_per_second: ((after.told - before.told) * plan.blocks) as f64 / seconds,
        indexer_cpu: share(after.indexer, before.indexer),
        indexer_mib,
        redis,
        lag_ms: [at(50), at(99), at(100)],
    })
}

/// A number that Redis tells.
fn info(redis: &Redis, section: &str, name: &str) -> Result<f64> {
    let text = String::from_utf8(redis.ask(&["info", section])?)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(line.with_context(|| format!("Redis tells no {name}"))?.trim().parse()?)
}

// === impl Lane ===

impl Lane {
    async fn start(plan: &Plan, dir: &Path) -> Result<Self> {
        let engines = try_join_all((0..plan.streams).map(|_| Recorder::start(LOOPBACK))).await?;
        let full_after = plan.cache / plan.blocks;
        let churn: Vec<Churn> =
            (0..plan.streams).map(|stream| Churn { stream, blocks: plan.blocks, full_after }).collect();
        let rate = plan.rate as f64 / (plan.blocks * plan.streams) as f64;
        let publishers =
            churn.iter().map(|churn| Publisher::start(*churn, rate)).collect::<Result<Vec<_>>>()?;
        let endpoint = |(engine, publisher): (&Recorder, &Publisher)| json!({ "address": engine.address(), "model": MODEL, "events": publisher.address() });
        let endpoints: Vec<Value> = engines.iter().zip(&publishers).map(endpoint).collect();
        let mut config = json!({
            "models": [{ "name": MODEL }],
            "endpoints": { "static": endpoints },
            "lifecycle": { "warmup_ms": 2000 },
        });
        let mut redis = None;
        if let Some(interval_ms) = plan.interval_ms {
            let running = Redis::start(Port::claim()?, dir).await?;
            config["mirror"] = json!({ "redis": running.address(), "interval_ms": interval_ms });
            redis = Some(running);
        }
        let indexer = Indexer::start("indexer", IndexerPorts::claim()?, config, dir).await?;
        let streams = usize::try_from(plan.streams)?;
        eventually("the indexer is connected to every stream", async || {
            let connected = indexer.connected_streams().await?;
            seen_if(connected == streams, format!("{connected} streams"))
        })
        .await?;
        Ok(Self { churn, publishers, indexer, redis, _engines: engines })
    }

    async fn spent(&mut self) -> Result<Spent> {
        let saves = self.indexer.metrics().await?.sum("warmpath_mirror_saves_total", &[("result", "saved")]);
        let redis = match &mut self.redis {
            None => None,
            Some(redis) => {
                let commands = info(redis, "stats", "total_commands_processed")?;
                let bytes = info(redis, "stats", "total_net_input_bytes")?;
                Some((redis.process().cpu_time()?, commands, bytes))
            }
        };
        let told = self.publishers.iter().map(Publisher::told).sum();
        Ok(Spent { at: Instant::now(), told, indexer: self.indexer.process().cpu_time()?, saves, redis })
    }

    /// Of the stream that is most behind.
    async fn lag_ms(&self) -> Result<f64> {
        let metrics = self.indexer.metrics().await?;
        let lags = metrics.matching("warmpath_kv_lag_seconds", &[]).map(|sample| sample.value * 1000.0);
        lags.max_by(f64::total_cmp).context("the indexer shows no lag")
    }

    /// Ends the streams: the index holds what the caches do, and nothing was lost on the way.
    async fn all_was_read(&mut self) -> Result<()> {
        let mut held = 0;
        for (churn, publisher) in self.churn.iter().zip(&mut self.publishers) {
            held += churn.held(publisher.stop()?);
        }
        eventually(&format!("the index holds {held} blocks"), async || {
            let state = self.indexer.state().await?;
            let references = state["index"]["references"].as_u64().context("no references")?;
            seen_if(references == held, state["index"].to_string())
        })
        .await?;
        let gaps = self.indexer.metrics().await?.sum("warmpath_kv_gaps_total", &[]);
        ensure!(gaps == 0.0, "{gaps} gaps");
        Ok(())
    }
}
