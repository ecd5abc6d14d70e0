//! The demo: one load, three policies, each from cold caches, and what it shows.
//!
//! A run is a whole stack of its own: two fresh engines, Envoy, and an indexer with the policy. What it showed is read
//! from three sides over the same window, because one alone misleads: how requests were spread (A, from the answers),
//! the engines' own hit rate (B, from the engines), and what the index did (C, from the indexer).

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::case::fresh_dir;
use crate::engine::PrefixCache;
use crate::load::figures::Figures;
use crate::load::{Load, Sample};
use crate::metrics::Metrics;
use crate::prompts;
use crate::stack::Stack;

pub mod summary;
pub mod table;

/// The policies that are compared, in the order of the table.
pub const POLICIES: [&str; 3] = ["round_robin", "least_load", "cost"];

/// Speed of an engine, so that round robin reaches the throughput of the published run: 5.7 requests a second on two
/// engines, two thirds of 3,136 tokens each to be computed.
const PREFILL_TOKENS_PER_SECOND: u32 = 6000;
/// Blocks of 16 tokens in an engine's cache: what its half of the 32 concurrent requests needs, two and a half times.
const BLOCKS: u32 = 8192;
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// What one run showed.
#[derive(Clone, Debug)]
pub struct Run {
    /// The policy.
    pub policy: &'static str,
    /// A, and the times.
    pub figures: Figures,
    /// B.
    pub prefix_cache: PrefixCache,
    /// C.
    pub index: IndexCounters,
    /// How long the load took, in the engine's time.
    pub took: Duration,
}

/// What the indexer's event streams and index did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IndexCounters {
    /// Event batches taken in.
    pub batches: f64,
    /// Events in them.
    pub events: f64,
    /// Blocks that engines said they stored.
    pub stored: f64,
    /// Blocks that left the index, for whatever cause.
    pub removed: f64,
    /// Gaps in the sequence of some stream.
    pub gaps: f64,
}

impl IndexCounters {
    fn of(metrics: &Metrics) -> Self {
        Self {
            batches: metrics.sum("warmpath_kv_batches_published_total", &[])
                + metrics.sum("warmpath_kv_batches_replayed_total", &[]),
            events: metrics.sum("warmpath_kv_events_total", &[]),
            stored: metrics.sum("warmpath_index_admissions_total", &[("cause", "stored")]),
            removed: metrics.sum("warmpath_index_removals_total", &[]),
            gaps: metrics.sum("warmpath_kv_gaps_total", &[]),
        }
    }
}

/// Starts a stack with this policy, drives the load through it and reads all three sides. Logs and samples go to `dir`.
pub async fn run(policy: &'static str, load: &Load, speedup: f64, dir: &Path) -> Result<Run> {
    let dir = fresh_dir(&dir.join(policy));
    let stack = Stack::builder()?.engines(2).policy(policy).each_engine(|engine| {
        engine.speedup = speedup;
        engine.prefill_tokens_per_second = PREFILL_TOKENS_PER_SECOND;
        engine.blocks = BLOCKS;
    });
    let stack =
        stack.filter(move |filter| filter["report_interval_ms"] = Load::report_interval_ms(speedup).into());
    let mut stack = stack.start(&dir).await?;
    check_prompts(&stack).await?;
    let before = caches(&stack).await?;
    let started = Instant::now();
    let samples = drive(&stack, load, speedup, policy).await?;
    let took = started.elapsed().mul_f64(speedup);
    std::fs::write(dir.join("samples.json"), serde_json::to_vec(&samples)?)?;
    let after = caches(&stack).await?;
    let index = IndexCounters::of(&stack.indexer()?.metrics().await?);
    Ok(Run {
        policy,
        figures: Figures::of(&samples),
        prefix_cache: PrefixCache { hits: after.hits - before.hits, queries: after.queries - before.queries },
        index,
        took,
    })
}

/// The load's prompts have the length they claim only if every word of theirs is a token.
async fn check_prompts(stack: &Stack) -> Result<()> {
    let engine = stack.engines.first().context("a demo without engines")?;
    let tokens = engine.tokenize(&prompts::text(0, 1000)).await?.len();
    ensure!(tokens == 1000, "a text of 1000 words has {tokens} tokens");
    Ok(())
}

async fn caches(stack: &Stack) -> Result<PrefixCache> {
    let mut all = Vec::new();
    for engine in &stack.engines {
        all.push(engine.prefix_cache().await?);
    }
    Ok(PrefixCache::sum(all))
}

/// Drives the load and says how far it is.
async fn drive(stack: &Stack, load: &Load, speedup: f64, policy: &str) -> Result<Vec<Sample>> {
    let done = Arc::new(AtomicUsize::new(0));
    let address = stack.envoy.address();
    let driving = load.drive(&stack.client, &address, speedup, &done);
    tokio::pin!(driving);
    let mut progress = Progress::new(policy, load.prefixes * load.uses);
    loop {
        tokio::select! {
            samples = &mut driving => {
                progress.end();
                return samples;
            }
            () = tokio::time::sleep(PROGRESS_EVERY) => progress.show(done.load(Ordering::Relaxed)),
        }
    }
}

/// A line that says how far a run is: rewritten in place on a terminal, one for each tenth elsewhere.
struct Progress<'a> {
    policy: &'a str,
    whole: usize,
    shown_tenths: usize,
    in_place: bool,
    started: Instant,
}

impl<'a> Progress<'a> {
    fn new(policy: &'a str, whole: usize) -> Self {
        let in_place = std::io::stderr().is_terminal();
        Self { policy, whole, shown_tenths: 0, in_place, started: Instant::now() }
    }

    fn show(&mut self, done: usize) {
        let tenths = 10 * done / self.whole.max(1);
        if !self.in_place && tenths == self.shown_tenths {
            return;
        }
        self.shown_tenths = tenths;
        let (start, end) = if self.in_place { ("\r", "") } else { ("", "\n") };
        let seconds = self.started.elapsed().as_secs();
        tell(&format!(
            "{start}  {:<12} {done:>4} of {} answers, {seconds:>3} s{end}",
            self.policy, self.whole
        ));
    }

    fn end(&mut self) {
        self.shown_tenths = usize::MAX;
        self.show(self.whole);
        if self.in_place {
            tell("\n");
        }
    }
}

/// To whoever watches; nothing is lost where nobody does.
pub fn tell(text: &str) {
    let mut watcher = std::io::stderr().lock();
    drop(watcher.write_all(text.as_bytes()).and_then(|()| watcher.flush()));
}
