//! What reading a request costs inside Envoy: the same chats through three of them in turn, one without the filter, one
//! whose filter can ask no indexer (it only reads), one with everything; and natively beside.
//!
//! By hand, in a release build, on a machine with nothing else to do: `docs/benchmarks.md` has the command. One worker,
//! one request at a time. The engine is a recorder, which answers at once.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use serde_json::{Value, json};
use warmpath_core::path::KnownPath;
use warmpath_core::request::extract;
use warmpath_tests::case::{fresh_dir, print_logs};
use warmpath_tests::client::{Call, Receipt};
use warmpath_tests::envoy::Bootstrap;
use warmpath_tests::paths;
use warmpath_tests::prompts::{chat, text};
use warmpath_tests::stack::{Stack, StackBuilder};

/// Sizes of the bodies, in bytes, about: a long question, and a conversation of some 100,000 tokens.
const BODIES: [usize; 2] = [12_000, 400_000];
/// Bytes of a message: as in a conversation about source code.
const MESSAGE_BYTES: usize = 2_000;
/// Bytes of a word of the prompts, with the space before it, about.
const WORD_BYTES: usize = 7;
/// Requests before those that count: connections, and the three failures after which no indexer is asked.
const WARM_UP: usize = 10;

#[derive(Debug, Parser)]
struct Args {
    /// Requests of each size through each Envoy.
    #[arg(long, default_value_t = 300)]
    requests: usize,
}

/// One of the three.
struct Lane {
    name: &'static str,
    /// What the filter says it did, as outcome and reason. A request of which it says something else does not count.
    receipt: (&'static str, &'static str),
    stack: Stack,
    times: Vec<Duration>,
    /// The last receipt that was another one.
    other: Option<Receipt>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let dir = fresh_dir(&paths::target().join("reading"));
    let outcome = run(&args, &dir).await;
    if outcome.is_err() {
        for lane in ["without", "reading", "everything"] {
            print_logs(&dir.join(lane));
        }
    }
    outcome
}

async fn run(args: &Args, dir: &Path) -> Result<()> {
    let without =
        start("without", dir, |stack| stack.indexers(0).bootstrap(Bootstrap::remove_filter)).await?;
    let reading = start("reading", dir, |stack| stack.indexers(0)).await?;
    let everything = start("everything", dir, |stack| stack).await?;
    let mut lanes = [
        Lane { name: "without", receipt: ("", ""), stack: without, times: Vec::new(), other: None },
        Lane {
            name: "reading",
            receipt: ("passed", "circuit_open"),
            stack: reading,
            times: Vec::new(),
            other: None,
        },
        // A recorder publishes no events: the prompt is tokenized and hashed, and then no cache is asked.
        Lane {
            name: "everything",
            receipt: ("load_only", "no_events"),
            stack: everything,
            times: Vec::new(),
            other: None,
        },
    ];
    tell("body, bytes | way | requests | p50, us | p90, us | p99, us | p50 more than without, us")?;
    for bytes in BODIES {
        measure(&mut lanes, bytes, args.requests).await?;
    }
    Ok(())
}

async fn start(name: &str, dir: &Path, change: impl FnOnce(StackBuilder) -> StackBuilder) -> Result<Stack> {
    change(Stack::builder()?.recorders(1).workers(1)).start(&fresh_dir(&dir.join(name))).await
}

/// Sends every body through all lanes, in an order that turns, before the next body is made.
async fn measure(lanes: &mut [Lane; 3], bytes: usize, requests: usize) -> Result<()> {
    let mut native = Vec::new();
    let mut size = 0;
    for number in 0..WARM_UP + requests {
        let call = conversation(number as u64, bytes);
        size = call.body().len();
        let begun = Instant::now();
        let read = extract(KnownPath::Chat, call.body());
        native.push(begun.elapsed());
        ensure!(read.is_ok(), "the body cannot be read: {read:?}");
        for turn in 0..lanes.len() {
            let place = (number + turn) % lanes.len();
            let Some(lane) = lanes.get_mut(place) else { continue };
            let answer = lane.stack.send(call.clone()).await?;
            ensure!(answer.status == 200, "{}: status {}", lane.name, answer.status);
            lane.stack.recorders.iter().for_each(|recorder| drop(recorder.take()));
            let receipt = answer.receipt();
            if number < WARM_UP {
                continue;
            }
            if (receipt.outcome.as_str(), receipt.reason.as_str()) == lane.receipt {
                lane.times.push(answer.total);
            } else {
                lane.other = Some(receipt);
            }
        }
    }
    let mut base = None;
    for lane in lanes {
        let times = std::mem::take(&mut lane.times);
        ensure!(
            times.len() * 2 > requests,
            "{}: only {} requests were as meant: {:?}",
            lane.name,
            times.len(),
            lane.other
        );
        let more = report(size, lane.name, times, base)?;
        base.get_or_insert(more);
    }
    report(size, "native", native.split_off(WARM_UP), None)?;
    Ok(())
}

/// Prints one line; hands back the median.
fn report(size: usize, name: &str, mut times: Vec<Duration>, base: Option<f64>) -> Result<f64> {
    times.sort_unstable();
    let at = |percent: usize| {
        let time = times.get((times.len().saturating_sub(1)) * percent / 100).copied().unwrap_or_default();
        time.as_secs_f64() * 1e6
    };
    let more = base.map_or(String::new(), |base| format!("{:+.0}", at(50) - base));
    tell(&format!(
        "{size} | {name} | {} | {:.0} | {:.0} | {:.0} | {more}",
        times.len(),
        at(50),
        at(90),
        at(99)
    ))?;
    Ok(at(50))
}

fn tell(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

/// A conversation that begins with nothing that another one began with.
fn conversation(seed: u64, bytes: usize) -> Call {
    let turns = bytes.div_ceil(MESSAGE_BYTES);
    let words = bytes / turns / WORD_BYTES;
    let turn = |place: usize| -> Value {
        let role = if place.is_multiple_of(2) { "user" } else { "assistant" };
        json!({ "role": role, "content": text(seed * 1_000 + place as u64, words) })
    };
    chat((0..turns).map(turn).collect())
}
