//! From ZeroMQ frames to the index: what a block costs, and how many a second go in.
//!
//! Three processes for each shape of events, so that nothing of one is in the figures of another: this one asks, one follows
//! four publishers with the program's own event thread and index, one publishes. `docs/benchmarks.md` defines the figures.

#![expect(clippy::unwrap_used, reason = "a bench whose sockets fail has nothing to measure")]
#![expect(clippy::print_stdout, reason = "figures go there")]

#[path = "ingest/follow.rs"]
mod follow;
#[path = "ingest/publish.rs"]
mod publish;
#[path = "ingest/shape.rs"]
mod shape;

use std::process::Command;

use shape::{Pace, SHAPES};

/// The program's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Batches a second that are offered, all publishers together.
const RATES: [u64; 5] = [10_000, 25_000, 50_000, 100_000, 200_000];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "follow", shape, pace] => follow::run(shape.parse().unwrap(), Pace::parse(pace)),
        [_, "publish", shape, pace] => publish::run(shape.parse().unwrap(), Pace::parse(pace)),
        _ => all(),
    }
}

fn all() {
    println!("as fast as they are read:");
    println!(
        "blocks an event | events | CPU, us a block | CPU, us an event | RSS, B a block | blocks a second | events a second"
    );
    for shape in 0..SHAPES.len() {
        in_a_process(shape, Pace::Drained);
    }
    println!("at a fixed rate:");
    println!(
        "blocks an event | events a second | applied when the last was sent | all applied after, ms | CPU of a core"
    );
    for shape in 0..SHAPES.len() {
        for rate in RATES {
            in_a_process(shape, Pace::Open { rate });
        }
    }
}

fn in_a_process(shape: usize, pace: Pace) {
    let this = std::env::current_exe().unwrap();
    let status = Command::new(this).args(["follow", &shape.to_string(), &pace.to_string()]).status().unwrap();
    assert!(status.success(), "the process that follows ended with {status}");
}
