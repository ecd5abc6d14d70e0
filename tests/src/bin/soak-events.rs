//! `make soak-events`: events over real sockets, with faults, until the index has read so many.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use clap::Parser;
use warmpath_tests::case::{fresh_dir, print_logs};
use warmpath_tests::paths;
use warmpath_tests::soak::{Plan, run};

/// Eight emulated engines with faults, and the real indexer; after every fault the index must become exact again.
#[derive(Debug, Parser)]
struct Args {
    /// Events that the indexer is to read.
    #[arg(long, default_value_t = 10_000_000)]
    events: u64,
    /// Decides faults and prompts; what overlaps with what depends on the machine.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests that an engine serves between two faults.
    #[arg(long, default_value_t = 400)]
    requests_between: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Args { events, seed, requests_between } = Args::parse();
    let dir = fresh_dir(&paths::target().join("soak"));
    let plan = Plan { events, seed, requests_between, has_slow_faults: true };
    let report = match run(&plan, &dir).await {
        Ok(report) => report,
        Err(error) => {
            print_logs(&dir);
            return Err(error.context(format!("seed {seed}")));
        }
    };
    let path = dir.join("events.json");
    std::fs::write(&path, serde_json::to_vec_pretty(&report.json())?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    write!(std::io::stdout(), "{report}")?;
    Ok(())
}
