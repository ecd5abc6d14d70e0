//! `make chaos`: schedules of random faults, some side by side, each with a line of what it showed.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures::{StreamExt as _, stream};
use warmpath_tests::case::{fresh_dir, print_logs};
use warmpath_tests::chaos::report::Report;
use warmpath_tests::chaos::run;
use warmpath_tests::chaos::schedule::Schedule;
use warmpath_tests::paths;

/// Plays schedules of random faults under load. What a seed is made of is in `target/chaos/seed-N.json`.
#[derive(Debug, Parser)]
struct Args {
    /// Schedules.
    #[arg(long, default_value_t = 200)]
    count: u64,
    /// The first seed; those after it follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Length of each.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Requests in a second.
    #[arg(long, default_value_t = 25.0)]
    rate: f64,
    /// Side by side.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// Ends without an error whatever comes out, to see all of it.
    #[arg(long)]
    keep_going: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let dir = paths::target().join("chaos");
    std::fs::create_dir_all(&dir)?;
    // Built or found before anything runs side by side.
    paths::indexer()?;
    paths::emulator()?;
    paths::filter_wasm()?;
    paths::envoy()?;
    let broken = AtomicUsize::new(0);
    let schedules = (args.seed..args.seed + args.count).map(|seed| Schedule::of(seed, 1000 * args.seconds));
    let played = schedules.map(|schedule| play(schedule, args.rate, &dir));
    stream::iter(played)
        .buffer_unordered(args.jobs)
        .for_each(async |result| {
            let is_clean = result.as_ref().is_ok_and(Report::is_clean);
            broken.fetch_add(usize::from(!is_clean), Ordering::Relaxed);
            let line = match result {
                Ok(report) => report.to_string(),
                Err(error) => format!("could not be played: {error:#}"),
            };
            drop(writeln!(std::io::stdout(), "{line}"));
        })
        .await;
    let broken = broken.into_inner();
    writeln!(std::io::stdout(), "{} schedules, {broken} not clean", args.count)?;
    ensure!(broken == 0 || args.keep_going, "{broken} of {} schedules are not clean", args.count);
    Ok(())
}

async fn play(schedule: Schedule, rate: f64, dir: &Path) -> Result<Report> {
    let seed = schedule.seed;
    let logs = fresh_dir(&dir.join(format!("seed-{seed}")));
    let report = run(schedule, rate, &logs).await.with_context(|| format!("seed {seed}"))?;
    std::fs::write(dir.join(format!("seed-{seed}.json")), serde_json::to_vec_pretty(&report)?)?;
    if report.is_clean() {
        // Of what went well the report is enough.
        drop(std::fs::remove_dir_all(&logs));
    } else {
        print_logs(&logs);
    }
    Ok(report)
}
