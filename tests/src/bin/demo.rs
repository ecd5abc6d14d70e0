//! `make demo`: the same load through three policies, one table.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use clap::Parser;
use warmpath_tests::case::{fresh_dir, print_logs};
use warmpath_tests::demo::summary::Summary;
use warmpath_tests::demo::{POLICIES, run, table, tell};
use warmpath_tests::load::Load;
use warmpath_tests::paths;

/// Drives one load through Envoy and two emulated engines, once for each policy, and prints what it shows.
#[derive(Debug, Parser)]
struct Args {
    /// How many times faster than real engines the emulated ones run.
    #[arg(long, default_value_t = 3.0)]
    speedup: f64,
    /// Different prefixes; each is used three times.
    #[arg(long, default_value_t = Load::three_uses().prefixes)]
    prefixes: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let load = Load { prefixes: args.prefixes, ..Load::three_uses() };
    let dir = fresh_dir(&paths::target().join("demo"));
    tell(&format!(
        "{} requests: {} prefixes of {} tokens, {} uses each, {} a second, {} at once; \
         two emulated engines, {} times as fast as real ones\n",
        load.prefixes * load.uses,
        load.prefixes,
        load.prefix_tokens,
        load.uses,
        load.rate,
        load.concurrency,
        args.speedup,
    ));
    let mut runs = Vec::new();
    for policy in POLICIES {
        match run(policy, &load, args.speedup, &dir).await {
            Ok(run) => runs.push(run),
            Err(error) => {
                print_logs(&dir.join(policy));
                return Err(error.context(format!("the run with policy {policy} failed")));
            }
        }
    }
    let summary = Summary::of(&load, &runs);
    let path = paths::target().join("demo/summary.json");
    std::fs::write(&path, serde_json::to_vec_pretty(&summary)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    writeln!(std::io::stdout(), "\n{}", table::table(summary.ideal_hit_rate, &runs))?;
    Ok(())
}
