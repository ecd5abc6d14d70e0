//! What Warmpath adds to a request, seen by the client: the same chats, as many at a time as said, through four Envoys in
//! turn: without the filter; with one that has no indexer to ask and only reads; with one whose indexer answers without
//! a thought, which is what any filter that asks somebody pays; with everything.
//!
//! By hand, in a release build, on a machine with nothing else to do: `docs/benchmarks.md` has the command. The engine is
//! a recorder that holds each answer for as long as keeps the rate of requests where this machine can serve them, and
//! says how long it held it; what is left of the time to the first byte is what the proxy and Warmpath took. A recorder
//! publishes no KV events: everything is done but the lookup itself.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures::future::try_join_all;
use serde_json::{Value, json};
use warmpath_tests::case::{fresh_dir, print_logs};
use warmpath_tests::chaos::proc::Holdings;
use warmpath_tests::client::Call;
use warmpath_tests::envoy::Bootstrap;
use warmpath_tests::paths;
use warmpath_tests::process::Process;
use warmpath_tests::prompts::{chat, text};
use warmpath_tests::recorder::HELD_HEADER;
use warmpath_tests::scripted::Script;
use warmpath_tests::stack::{Stack, StackBuilder};

/// Bytes of a word of the prompts, with the space before it, about.
const WORD_BYTES: usize = 7;
/// Words of a message.
const MESSAGE_WORDS: usize = 300;
/// Words of the last message, which is always a new one.
const NEW_WORDS: usize = 30;
/// Conversations that go on: each request is one of them with a new last message.
const CONVERSATIONS: usize = 16;
/// Between two looks at what the recorder has collected, which is dropped.
const TIDY_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Parser)]
struct Args {
    /// Sizes of the bodies, in bytes, about.
    #[arg(long, value_delimiter = ',', default_value = "12000,220000")]
    bodies: Vec<usize>,
    /// Requests in flight.
    #[arg(long, value_delimiter = ',', default_value = "1,64,512")]
    concurrency: Vec<usize>,
    /// Megabytes of bodies a second that are sent at most.
    #[arg(long, default_value_t = 10.0)]
    megabytes_per_second: f64,
    /// Requests a second that are sent at most.
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    /// How long each turn lasts, in seconds.
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Keeps the cores awake by idle-class loops, which give way to everything else: what a virtual machine takes to
    /// wake a core between two messages is left out then.
    #[arg(long)]
    awake: bool,
    /// How often the lanes are measured in turn.
    #[arg(long, default_value_t = 2)]
    turns: usize,
    /// Which of the four.
    #[arg(long, value_delimiter = ',', default_value = "without,reading,asking,everything")]
    lanes: Vec<String>,
}

/// One of the four.
struct Lane {
    name: &'static str,
    /// What the filter says it did. A request of which it says something else is counted apart.
    outcome: &'static str,
    stack: Stack,
    seen: Seen,
}

/// What was measured in a lane.
#[derive(Default)]
struct Seen {
    added: Vec<Duration>,
    others: usize,
    envoy: Duration,
    indexer: Duration,
    /// The most that Envoy was seen to have resident, in MiB.
    envoy_mib: u64,
}

/// What is sent: bodies of which only the end is new.
struct Conversations {
    heads: Vec<Vec<Value>>,
    next: AtomicU64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let dir = fresh_dir(&paths::target().join("overhead"));
    let outcome = run(&args, &dir).await;
    if outcome.is_err() {
        ["without", "reading", "asking", "everything"].iter().for_each(|lane| print_logs(&dir.join(lane)));
    }
    outcome
}

async fn run(args: &Args, dir: &Path) -> Result<()> {
    let _awake = if args.awake { keep_awake(dir)? } else { vec![] };
    let without =
        start("without", dir, |stack| stack.indexers(0).bootstrap(Bootstrap::remove_filter)).await?;
    let reading = start("reading", dir, |stack| stack.indexers(0)).await?;
    let asking = start("asking", dir, |stack| stack.script(Script::Silence)).await?;
    let places = asking.endpoints().into_iter().map(|endpoint| (endpoint, None)).collect();
    asking.scripted()?.play(Script::Rank(places));
    let everything = start("everything", dir, |stack| stack).await?;
    let lane = |name, outcome, stack| Lane { name, outcome, stack, seen: Seen::default() };
    let lanes = [
        lane("without", "", without),
        lane("reading", "passed", reading),
        lane("asking", "scored", asking),
        lane("everything", "load_only", everything),
    ];
    let mut lanes: Vec<Lane> =
        lanes.into_iter().filter(|lane| args.lanes.iter().any(|name| name == lane.name)).collect();
    tell(
        "| body, bytes | in flight | | requests | otherwise | p50, µs | p90, µs | p99, µs | Envoy, CPU µs a request | indexer | Envoy, MiB |",
    )?;
    tell("|---|---|---|---|---|---|---|---|---|---|---|")?;
    for bytes in &args.bodies {
        let conversations = Arc::new(Conversations::new(*bytes));
        for in_flight in &args.concurrency {
            measure(&mut lanes, &conversations, *in_flight, args).await?;
        }
    }
    Ok(())
}

/// A loop for each core, for as long as they are kept.
fn keep_awake(dir: &Path) -> Result<Vec<Process>> {
    let cores = std::thread::available_parallelism()?.get();
    let spin = |core| {
        let command = ["--idle", "0", "sh", "-c", "while :; do :; done"];
        Process::start(&format!("awake-{core}"), Path::new("/usr/bin/chrt"), command, dir)
    };
    (0..cores).map(spin).collect()
}

async fn start(name: &str, dir: &Path, change: impl FnOnce(StackBuilder) -> StackBuilder) -> Result<Stack> {
    change(Stack::builder()?.recorders(2)).start(&fresh_dir(&dir.join(name))).await
}

async fn measure(
    lanes: &mut [Lane],
    conversations: &Arc<Conversations>,
    in_flight: usize,
    args: &Args,
) -> Result<()> {
    let size = conversations.call()?.body().len();
    let rate = args.rate.min(args.megabytes_per_second * 1e6 / size as f64);
    // One at a time tells what an idle proxy adds.
    let hold = if in_flight == 1 { Duration::ZERO } else { Duration::from_secs_f64(in_flight as f64 / rate) };
    let lasting = Duration::from_secs_f64(args.seconds) + hold * 2;
    // What is sent first in a lane is seen for the first time there.
    for lane in lanes.iter() {
        lane.hold(Duration::ZERO);
        for _ in 0..CONVERSATIONS {
            lane.stack.send(conversations.call()?).await?;
        }
    }
    for _ in 0..args.turns {
        for lane in lanes.iter_mut() {
            lane.hold(hold);
            lane.turn(conversations, in_flight, hold, lasting).await?;
        }
    }
    for lane in lanes {
        let seen = std::mem::take(&mut lane.seen);
        tell(&format!("| {size} | {in_flight} | {} | {}", lane.name, seen.columns()))?;
    }
    Ok(())
}

fn tell(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

// === impl Lane ===

impl Lane {
    fn hold(&self, time: Duration) {
        self.stack.recorders.iter().for_each(|recorder| recorder.hold(time));
    }

    /// CPU time of Envoy and of the indexer so far.
    fn cpu(&mut self) -> Result<(Duration, Duration)> {
        let envoy = self.stack.envoy.process().cpu_time()?;
        let indexer = self.stack.indexers.first_mut().map(|indexer| indexer.process().cpu_time());
        Ok((envoy, indexer.transpose()?.unwrap_or_default()))
    }

    async fn turn(
        &mut self,
        conversations: &Arc<Conversations>,
        in_flight: usize,
        hold: Duration,
        lasting: Duration,
    ) -> Result<()> {
        let (envoy, indexer) = self.cpu()?;
        let begun = Instant::now();
        let places = (0..in_flight).map(|place| {
            // Spread over the time that an answer is held, so that they do not stay in step.
            let first = hold.mul_f64(place as f64 / in_flight as f64);
            place_of(
                self.stack.client.clone(),
                self.stack.envoy.address(),
                Arc::clone(conversations),
                begun,
                first,
                lasting,
            )
        });
        let places = try_join_all(places.map(tokio::spawn));
        let tidying = async {
            loop {
                tokio::time::sleep(TIDY_EVERY).await;
                let resident = Holdings::of(self.stack.envoy.process().id());
                self.seen.envoy_mib = self.seen.envoy_mib.max(resident.map_or(0, |held| held.rss_mib));
                self.stack.recorders.iter().for_each(|recorder| drop(recorder.take()));
                if let Ok(scripted) = self.stack.scripted() {
                    drop((scripted.take_asked(), scripted.take_reported()));
                }
            }
        };
        let places = tokio::select! {
            places = places => places?,
            never = tidying => match never {},
        };
        for place in places {
            for (added, outcome) in place? {
                if outcome == self.outcome {
                    self.seen.added.push(added);
                } else {
                    self.seen.others += 1;
                }
            }
        }
        let (envoy_now, indexer_now) = self.cpu()?;
        self.seen.envoy += envoy_now.saturating_sub(envoy);
        self.seen.indexer += indexer_now.saturating_sub(indexer);
        Ok(())
    }
}

/// One place of the closed loop: sends, waits for the answer, sends again. Time added and outcome of each request.
async fn place_of(
    client: warmpath_tests::client::Client,
    address: String,
    conversations: Arc<Conversations>,
    begun: Instant,
    first: Duration,
    lasting: Duration,
) -> Result<Vec<(Duration, String)>> {
    tokio::time::sleep(first).await;
    let mut seen = Vec::new();
    while begun.elapsed() < lasting {
        let answer = client.send(&address, conversations.call()?).await?;
        ensure!(answer.status == 200, "status {}: {}", answer.status, answer.text());
        let held: u64 = answer.header(HELD_HEADER).and_then(|held| held.parse().ok()).context("not held")?;
        let added = answer.first_byte.saturating_sub(Duration::from_micros(held));
        seen.push((added, answer.receipt().outcome));
    }
    Ok(seen)
}

// === impl Seen ===

impl Seen {
    fn columns(mut self) -> String {
        self.added.sort_unstable();
        let last = self.added.len().saturating_sub(1);
        let at = |percent: usize| {
            self.added.get(last * percent / 100).copied().unwrap_or_default().as_secs_f64() * 1e6
        };
        let requests = self.added.len() + self.others;
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / requests.max(1) as f64;
        format!(
            "{requests} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {} |",
            self.others,
            at(50),
            at(90),
            at(99),
            each(self.envoy),
            each(self.indexer),
            self.envoy_mib
        )
    }
}

// === impl Conversations ===

impl Conversations {
    fn new(bytes: usize) -> Self {
        let words = (bytes / WORD_BYTES).saturating_sub(NEW_WORDS);
        let turns = words.div_ceil(MESSAGE_WORDS).max(1);
        let head = |conversation: usize| {
            let message = |turn: usize| {
                let role = if turn.is_multiple_of(2) { "user" } else { "assistant" };
                json!({ "role": role, "content": text((conversation * 10_000 + turn) as u64, words / turns) })
            };
            (0..turns).map(message).collect()
        };
        Self { heads: (0..CONVERSATIONS).map(head).collect(), next: AtomicU64::new(1_000_000) }
    }

    /// The next conversation, with a last message that none had.
    fn call(&self) -> Result<Call> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let place = usize::try_from(number)? % self.heads.len();
        let mut messages = self.heads.get(place).context("no conversations")?.clone();
        messages.push(json!({ "role": "user", "content": text(number, NEW_WORDS) }));
        Ok(chat(messages.into()))
    }
}
