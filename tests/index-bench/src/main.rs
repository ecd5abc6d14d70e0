//! Compares the block index with two peers, in one run and on the same workloads: the index of the SGLang model
//! gateway (crate kv-index) and those of Dynamo's router (crate dynamo-kv-router).
//!
//! Contestants take turns in rounds; each figure is the median over the rounds. Before anything is timed, all of them
//! must answer alike, and as the workload says. See `docs/benchmarks.md` for what is timed on each side.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use serde_json::json;

mod alloc;
mod block;
mod caches;
mod contestant;
mod measure;
mod report;
mod section;
mod trace;
mod workload;

use report::Section;
use section::{Effort, churn, lookups, memory, readers, replay, writes};
use trace::Trace;
use workload::Shape;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// Lookups and single-threaded work.
const READER_CPU: usize = 0;
/// What writes meanwhile.
const WRITER_CPU: usize = 1;

/// Requests of a made-up trace: as many as the Mooncake conversation trace has.
const REQUESTS: usize = 12_031;

#[derive(Debug, Parser)]
#[command(about = "The block index beside two peers on the same workloads, in one run")]
struct Arguments {
    /// A trace in the format of the Mooncake traces; without it, made-up requests of the same shape.
    #[arg(long, env = "WARMPATH_BENCH_TRACE")]
    trace: Option<PathBuf>,
    /// Where to write the figures as JSON.
    #[arg(long, default_value = "target/bench/index.json")]
    out: PathBuf,
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Lookups in workloads of these shapes only.
    #[arg(long, value_enum, value_delimiter = ',')]
    shape: Vec<Shape>,
    /// Rounds in which the contestants take turns.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// A hundredth of everything: shows that it works, measures nothing.
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Lookups,
    Trace,
    Readers,
    Writes,
    Memory,
    Churn,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let trace = match arguments.trace.as_deref() {
        Some(path) if !path.as_os_str().is_empty() => Trace::read(path)?,
        _ => Trace::made_up(REQUESTS),
    };
    let effort = Effort { rounds: arguments.rounds.max(1), is_quick: arguments.quick };
    measure::pin(READER_CPU);
    let names = report::names();
    let clock = measure::clock_cost();
    let load = load_average();
    println!(
        "Load average {load} at the start; reading the clock adds {:.0} ns to each lookup of all contestants, which is \
         in the figures.\nThe last column is ours as a multiple of the best peer: below 1, ours is better.",
        clock.p50
    );
    let mut done = Vec::new();
    for part in Part::value_variants() {
        if arguments.only.is_empty() || arguments.only.contains(part) {
            let section = measured(*part, effort, &arguments.shape, &trace);
            print!("{}", section.print(&names));
            done.push(section.to_json(&names));
        }
    }
    let report = json!({
        "contestants": names, "clock_ns": clock.p50, "rounds": effort.rounds, "quick": effort.is_quick,
        "load_at_start": load, "load_at_end": load_average(), "trace": trace.origin, "sections": done,
    });
    if let Some(folder) = arguments.out.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    std::fs::write(&arguments.out, format!("{report:#}\n"))
        .with_context(|| format!("cannot write {}", arguments.out.display()))?;
    println!("\nLoad average {} at the end. The same as JSON: {}", load_average(), arguments.out.display());
    Ok(())
}

fn measured(part: Part, effort: Effort, shapes: &[Shape], trace: &Trace) -> Section {
    match part {
        Part::Lookups => lookups::run(effort, shapes),
        Part::Trace => replay::run(effort, trace),
        Part::Readers => readers::run(effort),
        Part::Writes => writes::run(effort),
        Part::Memory => memory::run(effort),
        Part::Churn => churn::run(effort),
    }
}

/// Over the last minute, as the system tells it.
fn load_average() -> String {
    let all = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    all.split(' ').next().unwrap_or_default().to_owned()
}
