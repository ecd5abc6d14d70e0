//! `make mirror-load`: the same streams of events into an indexer without a mirror, and with one that saves them as often as
//! said, in turn, beside each other.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use warmpath_tests::case::{fresh_dir, print_logs};
use warmpath_tests::mirror_load::{Plan, Row, run};
use warmpath_tests::paths;

/// Event streams at a fixed rate into an indexer without a mirror, and with one.
#[derive(Debug, Parser)]
struct Args {
    /// Of each, with caches that are full.
    #[arg(long, default_value_t = 40)]
    seconds: u64,
    /// Blocks stored in a second, by all streams together.
    #[arg(long, default_value_t = 100_000)]
    rate: u64,
    /// Streams.
    #[arg(long, default_value_t = 8)]
    streams: u64,
    /// Blocks of a batch.
    #[arg(long, default_value_t = 16)]
    blocks: u64,
    /// Blocks of a cache, about.
    #[arg(long, default_value_t = 131_072)]
    cache: u64,
    /// How often the mirror saves, in milliseconds; 0: there is none.
    #[arg(long, value_delimiter = ',', default_value = "0,10000,1000")]
    intervals_ms: Vec<u64>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Args { seconds, rate, streams, blocks, cache, intervals_ms } = Args::parse();
    let dir = fresh_dir(&paths::target().join("mirror-load"));
    let mut rows = Vec::new();
    let mut out = std::io::stdout();
    writeln!(
        out,
        "| saved every | blocks a second | indexer, CPU of a core | MiB | Redis, CPU of a core | commands a second | MB a second | images a second | holds, MB | lag p50, ms | p99 | most |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    for interval_ms in intervals_ms {
        let length = Duration::from_secs(seconds);
        let interval_ms = (interval_ms > 0).then_some(interval_ms);
        let dir = fresh_dir(&dir.join(interval_ms.unwrap_or_default().to_string()));
        let row = run(&Plan { length, rate, streams, blocks, cache, interval_ms }, &dir).await;
        if row.is_err() {
            print_logs(&dir);
        }
        let row = row.with_context(|| format!("saved every {interval_ms:?} ms"))?;
        writeln!(out, "{}", line(&row))?;
        rows.push(row);
    }
    std::fs::write(dir.join("mirror-load.json"), serde_json::to_vec_pretty(&rows)?)?;
    Ok(())
}

fn line(row: &Row) -> String {
    let saved =
        row.interval_ms.map_or_else(|| "no mirror".to_owned(), |ms| format!("{:.1} s", ms as f64 / 1000.0));
    let redis = row.redis.as_ref().map_or_else(
        || "– | – | – | – | –".to_owned(),
        |redis| {
            format!(
                "{:.3} | {:.1} | {:.2} | {:.2} | {:.1}",
                redis.cpu,
                redis.commands_per_second,
                redis.megabytes_per_second,
                redis.images_per_second,
                redis.used_mb
            )
        },
    );
    let [p50, p99, most] = row.lag_ms;
    format!(
        "| {saved} | {:.0} | {:.3} | {} | {redis} | {p50:.0} | {p99:.0} | {most:.0} |",
        row.blocks_per_second, row.indexer_cpu, row.indexer_mib
    )
}
