//! The program's event thread and index behind four real sockets, and what the process spends on them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use rustix::time::{ClockId, clock_gettime};
use warmpath_indexer::clock::Clock;
use warmpath_indexer::ingest::{self, Ingest, IngestConfig, StreamSpec};
use warmpath_kv::{Index, IndexLimits, KeyHasher, StreamId};

use crate::shape::{Pace, SHAPES, Shape};

/// Between two looks at how far it is: their own cost is taken off.
const LOOK: Duration = Duration::from_millis(2);

pub(crate) fn run(number: usize, pace: Pace) {
    let shape = SHAPES.get(number).unwrap();
    let this = std::env::current_exe().unwrap();
    let mut publisher = Command::new(this)
        .args(["publish", &number.to_string(), &pace.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(publisher.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut input = publisher.stdin.take().unwrap();

    let index = Arc::new(RwLock::new(Index::new(KeyHasher::new([7; 16]), IndexLimits::default())));
    let ingest =
        ingest::start(IngestConfig::default(), Arc::clone(&index), Clock::start(), Vec::new()).unwrap();
    let addresses = lines.next().unwrap();
    for (id, address) in (0..).zip(addresses.split(' ')) {
        let endpoint = format!("publisher-{id}");
        let (events, model) = (address.to_owned(), "m".to_owned());
        let spec =
            StreamSpec { id: StreamId(id), endpoint, rank: 0, events, replay: None, shared: false, model };
        ingest.add_stream(spec).unwrap();
    }
    assert_eq!(lines.next().unwrap(), "subscribed");

    let publishers = addresses.split(' ').count();
    let wanted = pace.events(shape) * publishers;
    let (rss, cpu, begun) = (rss(), Cpu::now(), Instant::now());
    writeln!(input, "go").unwrap();
    let (last_sent, sent) = std::sync::mpsc::channel();
    let waiter = thread::spawn(move || {
        assert_eq!(lines.next().unwrap(), "published");
        last_sent.send(Instant::now()).unwrap();
    });
    let mut applied_when_sent = None;
    let mut sent_at = None;
    loop {
        let applied = applied(&ingest);
        if sent_at.is_none()
            && let Ok(at) = sent.try_recv()
        {
            (sent_at, applied_when_sent) = (Some(at), Some(applied));
        }
        if applied == wanted {
            break;
        }
        thread::sleep(LOOK);
    }
    let wall = begun.elapsed();
    let done = Instant::now();
    let spent = cpu.elapsed();
    let grown = self::rss().saturating_sub(rss);
    waiter.join().unwrap();
    let sent_at = sent_at.or_else(|| sent.try_recv().ok()).unwrap_or(done);
    assert_eq!(index.read().stats().references, wanted * shape.blocks, "all is indexed");
    tell(shape, pace, wanted, wall, spent, grown, applied_when_sent.unwrap_or(wanted), done - sent_at);
    writeln!(input, "stop").unwrap();
    publisher.wait().unwrap();
}

#[expect(clippy::too_many_arguments, reason = "one row")]
fn tell(
    shape: &Shape,
    pace: Pace,
    events: usize,
    wall: Duration,
    spent: Duration,
    grown: usize,
    applied_when_sent: usize,
    rest: Duration,
) {
    let blocks = (events * shape.blocks) as f64;
    let (count, seconds) = (events as f64, wall.as_secs_f64());
    let us = spent.as_secs_f64() * 1e6;
    match pace {
        Pace::Drained => println!(
            "{} | {events} | {:.3} | {:.2} | {:.1} | {:.0} | {:.0}",
            shape.blocks,
            us / blocks,
            us / count,
            grown as f64 / blocks,
            blocks / seconds,
            count / seconds,
        ),
        Pace::Open { rate } => println!(
            "{} | {rate} | {:.1} % | {:.0} | {:.2}",
            shape.blocks,
            applied_when_sent as f64 * 100.0 / count,
            rest.as_secs_f64() * 1e3,
            spent.as_secs_f64() / seconds,
        ),
    }
}

/// Batches applied by all streams; none was lost.
fn applied(ingest: &Ingest) -> usize {
    let status = ingest.status();
    assert!(status.iter().all(|stream| stream.sequence.gaps == 0), "events were lost: {status:?}");
    status.iter().map(|stream| usize::try_from(stream.sequence.applied).unwrap()).sum()
}

/// CPU time of the process but for the thread that looks.
struct Cpu {
    process: Duration,
    thread: Duration,
}

impl Cpu {
    fn now() -> Self {
        Self { process: read(ClockId::ProcessCPUTime), thread: read(ClockId::ThreadCPUTime) }
    }

    fn elapsed(&self) -> Duration {
        let now = Self::now();
        (now.process - self.process).saturating_sub(now.thread - self.thread)
    }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Resident bytes of this process.
fn rss() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}
