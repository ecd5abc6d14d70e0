//! `make starts`: how long an indexer that starts beside engines with full caches takes until it is ready, and until its index is
//! what the engines hold, with what it may start from there or gone.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures::future::try_join_all;
use serde::Serialize;
use serde_json::{Value, json};
use warmpath_tests::audit::{Differences, Found, compare};
use warmpath_tests::case::{fresh_dir, print_logs};
use warmpath_tests::client::{Call, Client};
use warmpath_tests::engine::{Engine, EngineSpec};
use warmpath_tests::indexer::{Indexer, IndexerPorts, endpoint};
use warmpath_tests::paths;
use warmpath_tests::ports::Port;
use warmpath_tests::redis::Redis;

/// Of engines that take prompts as token ids only.
const MODEL: &str = "tiny";
/// Tokens of a block, and of a prompt.
const BLOCK_TOKENS: u32 = 16;
const PROMPT_TOKENS: u32 = 32_768;
/// Engines compute in no time: only what they hold matters.
const SPEEDUP: f64 = 10_000.0;
/// Batches that an engine's replay keeps: vLLM's default, and far fewer than it has told.
const KEPT: usize = 10_000;
const KEPT_FEW: usize = 4;
/// Who is not exact after so long will not be.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(5);
/// What a stream says of itself that has nothing to add.
const LIVE: &str = "live";

/// Starts of an indexer beside engines with full caches.
#[derive(Debug, Parser)]
struct Args {
    /// Engines.
    #[arg(long, default_value_t = 4)]
    engines: usize,
    /// Blocks that each holds, about.
    #[arg(long, default_value_t = 32_768)]
    blocks: u32,
    /// Starts in each state.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// What an indexer may start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// Redis has images.
    Redis,
    /// Redis was wiped, another indexer runs.
    WipedWithPeer,
    /// Redis was wiped; the engines' replay has all that they told.
    Wiped,
    /// Redis was wiped; the engines' replay has little.
    WipedAndFewKept,
}

/// What a start showed.
#[derive(Clone, Debug, Serialize)]
struct Start {
    state: State,
    ready_ms: f64,
    /// None: it was not, in [`PATIENCE`].
    exact_ms: Option<f64>,
    index: Index,
}

/// What an index has of the engines.
#[derive(Clone, Debug, Default, Serialize)]
struct Index {
    /// Blocks that the engines hold, and those of them that the index knows.
    held: usize,
    known: usize,
    /// Blocks that it believes to be there and that are not.
    phantom: usize,
    /// What its streams say of themselves.
    says: BTreeSet<String>,
    /// All streams are known, and nothing differs.
    is_exact: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let dir = fresh_dir(&paths::target().join("starts"));
    let mut out = std::io::stdout();
    writeln!(out, "| | ready, ms | exact, ms | blocks | known | streams say |\n|---|---|---|---|---|---|")?;
    let mut starts = Vec::new();
    for state in [State::Redis, State::WipedWithPeer, State::Wiped, State::WipedAndFewKept] {
        let dir = fresh_dir(&dir.join(format!("{state:?}")));
        let seen = play(&args, state, &dir).await;
        if seen.is_err() {
            print_logs(&dir);
        }
        let mut seen = seen.with_context(|| format!("{state:?}"))?;
        seen.sort_by(|one, other| one.ready_ms.total_cmp(&other.ready_ms));
        if let Some(start) = seen.get(seen.len() / 2) {
            writeln!(out, "{start}")?;
        }
        starts.extend(seen);
    }
    std::fs::write(dir.join("starts.json"), serde_json::to_vec_pretty(&starts)?)?;
    Ok(())
}

async fn play(args: &Args, state: State, dir: &Path) -> Result<Vec<Start>> {
    let redis = Redis::start(Port::claim()?, dir).await?;
    let kept = if state == State::WipedAndFewKept { KEPT_FEW } else { KEPT };
    let spec = EngineSpec {
        blocks: args.blocks,
        speedup: SPEEDUP,
        flags: vec![format!("--buffer-steps={kept}")],
        ..EngineSpec::new(MODEL, None)
    };
    let engines = (0..args.engines)
        .map(async |number| Engine::start(&format!("engine-{number}"), spec.clone(), dir).await);
    let engines = try_join_all(engines).await?;
    let count = if state == State::WipedWithPeer { 2 } else { 1 };
    let ports = (0..count).map(|_| IndexerPorts::claim()).collect::<Result<Vec<_>>>()?;
    let addresses: Vec<String> = ports.iter().map(IndexerPorts::grpc).collect();
    let mut indexers = Vec::new();
    for (number, ports) in ports.into_iter().enumerate() {
        let own = ports.grpc();
        let config = json!({
            "models": [{ "name": MODEL }],
            "endpoints": { "static": engines.iter().map(endpoint).collect::<Vec<Value>>() },
            "peers": addresses.iter().filter(|address| **address != own).collect::<Vec<_>>(),
            "mirror": { "redis": redis.address() },
        });
        indexers.push(Indexer::start(&format!("indexer-{number}"), ports, config, dir).await?);
    }
    let client = Client::default();
    try_join_all(engines.iter().zip(0..).map(|(engine, number)| fill(&client, engine, number))).await?;
    for indexer in &indexers {
        let seen = until_exact(&client, &engines, indexer, Instant::now()).await?;
        ensure!(seen.0.is_some(), "an indexer that saw it all must be exact");
    }
    let mut starts = Vec::new();
    let first = indexers.first_mut().context("no indexer")?;
    for _ in 0..args.rounds {
        // It saves a last time.
        first.stop()?;
        if state != State::Redis {
            redis.command("FLUSHALL").await?;
        }
        let begun = Instant::now();
        first.launch_again()?;
        first.wait_until_ready().await?;
        let ready_ms = millis(begun.elapsed());
        let (exact, index) = until_exact(&client, &engines, first, begun).await?;
        ensure!(index.phantom == 0, "blocks that no engine has: {index:?}");
        let says_it_is_whole = index.says.iter().all(|says| says == LIVE);
        ensure!(exact.is_some() || !says_it_is_whole, "it is not exact and does not say so: {index:?}");
        starts.push(Start { state, ready_ms, exact_ms: exact.map(millis), index });
    }
    Ok(starts)
}

/// Fills the cache of an engine with prompts of its own.
async fn fill(client: &Client, engine: &Engine, number: u32) -> Result<()> {
    let prompts = engine.spec().blocks * BLOCK_TOKENS / PROMPT_TOKENS;
    for at in 0..prompts {
        let first = (number * prompts + at) * 7919;
        let prompt: Vec<u32> = (0..PROMPT_TOKENS).map(|token| (first + token * 31) % 150_000).collect();
        let body = json!({ "model": MODEL, "prompt": prompt, "max_tokens": 1 });
        let answer = client.send(&engine.address(), Call::json("/v1/completions", &body)).await?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    }
    Ok(())
}

/// When the index was what the engines hold, after `begun`, if it became that; and what it has in the end.
async fn until_exact(
    client: &Client,
    engines: &[Engine],
    indexer: &Indexer,
    begun: Instant,
) -> Result<(Option<Duration>, Index)> {
    loop {
        let at = begun.elapsed();
        let mut index = Index { is_exact: true, ..Index::default() };
        for engine in engines {
            index.add(compare(client, engine, 0, indexer).await?);
        }
        if index.is_exact {
            return Ok((Some(at), index));
        }
        if begun.elapsed() > PATIENCE {
            return Ok((None, index));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

// === impl Index ===

impl Index {
    fn add(&mut self, found: Found) {
        let (found, says) = match found {
            Found::Compared(found) => (found, LIVE.to_owned()),
            Found::Partly(found, reason) => (found, reason),
            Found::NotYet(why) | Found::Nothing(why) => (Differences::default(), why),
        };
        let has = found.compared - found.phantom;
        self.held += has;
        self.known += has - found.missing;
        self.phantom += found.phantom;
        self.is_exact &= found.compared > 0 && found.is_none();
        self.says.insert(says);
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, ready_ms, exact_ms, index: Index { held, known, says, .. } } = self;
        let exact = exact_ms.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.0}"));
        let known = 100.0 * *known as f64 / (*held).max(1) as f64;
        let says: Vec<&str> = says.iter().map(String::as_str).collect();
        write!(f, "| {state:?} | {ready_ms:.0} | {exact} | {held} | {known:.1} % | {} |", says.join(", "))
    }
}
