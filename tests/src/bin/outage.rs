//! `make outage`: what it costs when Redis or the indexers are gone: the same requests with all of them there and with
//! some of them frozen or killed, in turn and on one fleet, beside each other.
//!
//! Envoy with the shipped bootstrap and deadline, two indexers with a mirror, three emulated engines. Times are real ones;
//! what counts is the difference between the lines. The time that the filter added to each request is its own histogram.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use serde::Serialize;
use warmpath_tests::case::{fresh_dir, print_logs};
use warmpath_tests::chaos::site::{Site, Size};
use warmpath_tests::chaos::traffic::{Sent, Traffic};
use warmpath_tests::paths;

/// The same load with everything there, with Redis frozen and killed, and with all indexers frozen and killed.
#[derive(Debug, Parser)]
struct Args {
    /// Of each state, each time.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Times that each state is brought about.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Requests in a second.
    #[arg(long, default_value_t = 40.0)]
    rate: f64,
}

/// What is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    AllThere,
    RedisFrozen,
    RedisKilled,
    IndexersFrozen,
    IndexersKilled,
}

const STATES: [State; 5] =
    [State::AllThere, State::RedisFrozen, State::RedisKilled, State::IndexersFrozen, State::IndexersKilled];
/// Envoy merges its histograms once a second here.
const MERGED: Duration = Duration::from_millis(2500);
const ADDED: &str = "warmpath_filter_added_latency_us_bucket";

/// Counts of the histogram up to each bound, in microseconds.
type Buckets = BTreeMap<u64, f64>;

/// What a state showed, over all rounds.
#[derive(Debug, Default, Serialize)]
struct Row {
    requests: usize,
    failed: usize,
    blind: usize,
    hit_rate: f64,
    /// Until the first byte, in milliseconds: p50, p99, largest.
    first_byte_ms: [f64; 3],
    /// Share of the requests to which the filter added at most so many microseconds.
    added_us: BTreeMap<u64, f64>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let dir = fresh_dir(&paths::target().join("outage"));
    let rows = match measure(&args, &dir).await {
        Ok(rows) => rows,
        Err(error) => {
            print_logs(&dir);
            return Err(error);
        }
    };
    std::fs::write(dir.join("outage.json"), serde_json::to_vec_pretty(&rows)?)?;
    write!(std::io::stdout(), "{}", table(&rows))?;
    let failed: usize = rows.values().map(|row| row.failed).sum();
    ensure!(failed == 0, "{failed} requests failed");
    Ok(())
}

async fn measure(args: &Args, dir: &std::path::Path) -> Result<BTreeMap<State, Row>> {
    let mut site =
        Site::start(Size { indexers: 2, engines: 3, timeout_ms: None, machines: None }, dir).await?;
    // Fills the caches.
    load(&site, args, 0).await?;
    let mut seen = BTreeMap::<State, (Vec<Sent>, Buckets)>::new();
    for round in 1..=args.rounds {
        for state in STATES {
            begin(&mut site, state).await?;
            let before = buckets(&site).await?;
            let (sent, added) = seen.entry(state).or_default();
            sent.extend(load(&site, args, round as u64).await?);
            for (bound, count) in buckets(&site).await? {
                *added.entry(bound).or_default() += count - before.get(&bound).copied().unwrap_or(0.0);
            }
            end(&mut site, state).await?;
        }
    }
    Ok(seen.into_iter().map(|(state, (sent, added))| (state, row(&sent, &added))).collect())
}

async fn load(site: &Site, args: &Args, seed: u64) -> Result<Vec<Sent>> {
    let traffic = Traffic { rate: args.rate, length: Duration::from_secs(args.seconds), seed };
    traffic.run(&site.client, &site.envoy.address(), Instant::now()).await
}

async fn begin(site: &mut Site, state: State) -> Result<()> {
    match state {
        State::AllThere => {}
        State::RedisFrozen => site.redis.process().freeze()?,
        State::RedisKilled => site.redis.process().kill()?,
        State::IndexersFrozen => {
            site.indexers.iter_mut().try_for_each(|indexer| indexer.process().freeze())?;
        }
        State::IndexersKilled => {
            site.indexers.iter_mut().try_for_each(|indexer| indexer.process().kill())?;
        }
    }
    Ok(())
}

async fn end(site: &mut Site, state: State) -> Result<()> {
    match state {
        State::AllThere => {}
        State::RedisFrozen => site.redis.process().thaw()?,
        State::RedisKilled => site.redis.start_again().await?,
        State::IndexersFrozen => {
            site.indexers.iter_mut().try_for_each(|indexer| indexer.process().thaw())?;
        }
        State::IndexersKilled => {
            for indexer in &mut site.indexers {
                indexer.start_again().await?;
            }
        }
    }
    for indexer in &mut site.indexers {
        indexer.wait_until_ready().await?;
    }
    site.wait_for_streams().await?;
    // Until the filters ask again.
    tokio::time::sleep(MERGED).await;
    Ok(())
}

async fn buckets(site: &Site) -> Result<Buckets> {
    tokio::time::sleep(MERGED).await;
    let metrics = site.envoy.metrics().await?;
    let mut buckets = Buckets::new();
    for sample in metrics.matching(ADDED, &[]) {
        let bound = sample.labels.get("le").and_then(|le| le.parse::<f64>().ok()).unwrap_or(f64::INFINITY);
        *buckets.entry(bound as u64).or_default() += sample.value;
    }
    ensure!(!buckets.is_empty(), "Envoy shows no {ADDED}");
    Ok(buckets)
}

fn row(sent: &[Sent], added: &Buckets) -> Row {
    let answered: Vec<&Sent> = sent.iter().filter(|sent| sent.failure.is_none()).collect();
    let sum = |tokens: fn(&Sent) -> u64| answered.iter().map(|sent| tokens(sent)).sum::<u64>() as f64;
    let mut times: Vec<u64> = answered.iter().map(|sent| sent.first_byte_us).collect();
    times.sort_unstable();
    let at = |share: f64| {
        let position = (share * times.len() as f64).ceil() as usize;
        times.get(position.saturating_sub(1)).map_or(0.0, |us| *us as f64 / 1000.0)
    };
    let all = added.values().copied().fold(0.0, f64::max);
    Row {
        requests: sent.len(),
        failed: sent.len() - answered.len(),
        blind: answered.iter().filter(|sent| sent.is_blind()).count(),
        hit_rate: sum(|sent| sent.cached_tokens) / sum(|sent| sent.prompt_tokens).max(1.0),
        first_byte_ms: [at(0.5), at(0.99), at(1.0)],
        added_us: added.iter().map(|(bound, count)| (*bound, count / all.max(1.0))).collect(),
    }
}

fn table(rows: &BTreeMap<State, Row>) -> String {
    let mut table = "| | requests | failed | blind | hit rate | first byte p50 | p99 | most | added: of 100 requests up to 1 ms | 5 ms | 50 ms | 60 ms |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n".to_owned();
    for (state, row) in rows {
        let [p50, p99, most] = row.first_byte_ms;
        let up_to = |us: u64| 100.0 * row.added_us.get(&us).copied().unwrap_or(f64::NAN);
        table += &format!(
            "| {state:?} | {} | {} | {} | {:.1} % | {p50:.1} ms | {p99:.1} ms | {most:.1} ms | {:.2} | {:.2} | {:.2} | {:.2} |\n",
            row.requests,
            row.failed,
            row.blind,
            100.0 * row.hit_rate,
            up_to(1000),
            up_to(5000),
            up_to(50_000),
            up_to(60_000),
        );
    }
    table
}
