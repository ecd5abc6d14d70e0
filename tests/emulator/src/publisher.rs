//! The event sockets of one rank, or of all where they share them: a thread with a PUB socket and the ROUTER that answers replay
//! requests.
//!
//! In come event lists through a bounded queue, out go numbered messages. The thread owns the sequence number and the
//! replay buffer of each rank, and the sockets; it never looks into an event. As in the real publisher it serves at most one
//! replay request per turn, and a turn is a batch or the idle wake.

mod stream;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stream::{Message, Stream};

use crate::core::KvEvent;
use crate::faults::SharedFaults;
use crate::wire::Encoder;

/// How often the real publisher looks at its replay socket when nothing is published.
const IDLE_WAKE: Duration = Duration::from_millis(100);
/// Event lists waiting for the thread; the real queue has this length too.
const QUEUE_MAX: usize = 100_000;
/// Messages that PUB holds for a slow subscriber before it drops (`hwm`).
const PUB_HWM: i32 = 100_000;
/// For how long a bind is tried again: the sockets of the incarnation before may still be closing.
const BIND_PATIENCE: Duration = Duration::from_secs(2);
const BIND_RETRY: Duration = Duration::from_millis(10);

/// What a publisher needs to know.
#[derive(Debug, Clone)]
pub(crate) struct PublisherConfig {
    /// Whose events these are.
    pub(crate) ranks: Range<u32>,
    /// Addresses to bind; port 0 takes a free one.
    pub(crate) events: String,
    pub(crate) replay: Option<String>,
    pub(crate) topic: String,
    pub(crate) buffer_steps: usize,
    pub(crate) encoder: Encoder,
    pub(crate) replays_topic: bool,
    /// Whether the ROUTER may hold two buffers' worth of answers (0.33); before, ZeroMQ's own limit of 1000 applies and
    /// long replays lose messages.
    pub(crate) router_hwm: Option<i32>,
    pub(crate) speedup: f64,
}

/// The sockets could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot bind {address}: {source}")]
pub struct BindError {
    address: String,
    source: zmq::Error,
}

/// Events of a rank.
type OfRank = (u32, Vec<KvEvent>);

/// One rank's handle of a running publisher; dropping all of them ends the thread once the queue is empty.
#[derive(Debug)]
pub(crate) struct Publisher {
    rank: u32,
    queue: SyncSender<OfRank>,
    thread: Arc<JoinHandle<()>>,
    events: String,
    replay: Option<String>,
}

impl Publisher {
    /// Binds and starts. Blocks for up to [`BIND_PATIENCE`].
    pub(crate) fn start(config: PublisherConfig, faults: Arc<SharedFaults>) -> Result<Self, BindError> {
        let context = zmq::Context::new();
        let events = open(&context, zmq::PUB, &config.events, Some(PUB_HWM))?;
        let replay = match &config.replay {
            Some(address) => Some(open(&context, zmq::ROUTER, address, config.router_hwm)?),
            None => None,
        };
        let bound = |socket: &zmq::Socket, asked: &str| match socket.get_last_endpoint() {
            Ok(Ok(address)) => address,
            _ => asked.to_owned(),
        };
        let events_address = bound(&events, &config.events);
        let replay_address =
            replay.as_ref().zip(config.replay.as_deref()).map(|(socket, asked)| bound(socket, asked));
        let (queue, input) = sync_channel(QUEUE_MAX);
        let rank = config.ranks.start;
        let worker = Worker {
            streams: config.ranks.clone().map(|rank| (rank, Stream::new(config.buffer_steps))).collect(),
            sockets: Sockets {
                events,
                replay,
                topic: config.topic.clone(),
                replays_topic: config.replays_topic,
            },
            faults,
            config,
        };
        let thread = std::thread::spawn(move || worker.run(&input));
        Ok(Self { rank, queue, thread: Arc::new(thread), events: events_address, replay: replay_address })
    }

    /// The same publisher for another of its ranks.
    pub(crate) fn of_rank(&self, rank: u32) -> Self {
        let (queue, thread) = (self.queue.clone(), self.thread.clone());
        Self { rank, queue, thread, events: self.events.clone(), replay: self.replay.clone() }
    }

    /// Address of the PUB socket.
    pub(crate) fn events_address(&self) -> &str {
        &self.events
    }

    /// Address of the ROUTER socket.
    pub(crate) fn replay_address(&self) -> Option<&str> {
        self.replay.as_deref()
    }

    /// Queues one batch; false if the queue is full or the thread gone.
    pub(crate) fn publish(&self, events: Vec<KvEvent>) -> bool {
        match self.queue.try_send((self.rank, events)) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Ends the thread and closes the sockets, if no other rank needs them. Blocks until both are done.
    pub(crate) fn stop(self) {
        drop(self.queue);
        if Arc::into_inner(self.thread).is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the event publisher panicked");
        }
    }
}

fn open(
    context: &zmq::Context,
    kind: zmq::SocketType,
    address: &str,
    hwm: Option<i32>,
) -> Result<zmq::Socket, BindError> {
    let failed = |source| BindError { address: address.to_owned(), source };
    let socket = context.socket(kind).map_err(failed)?;
    socket.set_linger(0).map_err(failed)?;
    // A real server sets it where its address is one.
    socket.set_ipv6(true).map_err(failed)?;
    if let Some(hwm) = hwm {
        socket.set_sndhwm(hwm).map_err(failed)?;
    }
    let deadline = Instant::now() + BIND_PATIENCE;
    loop {
        match socket.bind(address) {
            Ok(()) => return Ok(socket),
            Err(zmq::Error::EADDRINUSE) if Instant::now() < deadline => std::thread::sleep(BIND_RETRY),
            Err(source) => return Err(failed(source)),
        }
    }
}

/// What runs in the thread.
struct Worker {
    streams: BTreeMap<u32, Stream>,
    sockets: Sockets,
    faults: Arc<SharedFaults>,
    config: PublisherConfig,
}

impl Worker {
    fn run(mut self, input: &Receiver<OfRank>) {
        let idle_wake = IDLE_WAKE.div_f64(self.config.speedup);
        loop {
            self.answer_one_replay();
            let due = self.streams.values().filter_map(Stream::next_due).min();
            let due = due.map(|due| due.saturating_duration_since(Instant::now()));
            let wait = due.map_or(idle_wake, |due| due.min(idle_wake));
            match input.recv_timeout(wait) {
                Ok((rank, events)) => self.take(rank, &events),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            for stream in self.streams.values_mut() {
                for message in stream.take_due(Instant::now()) {
                    self.sockets.send(&message);
                }
            }
        }
    }

    /// Serves one replay question if one waits.
    fn answer_one_replay(&self) {
        let Some(question) = self.sockets.replay_question() else { return };
        if !self.faults.leaves_unanswered(self.config.ranks.start) {
            self.sockets.answer_replay(&question, self.streams.values());
        }
    }

    fn take(&mut self, rank: u32, events: &[KvEvent]) {
        let Some(stream) = self.streams.get_mut(&rank) else { return };
        let fate = self.faults.batch_fate(rank);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let payload = self.config.encoder.payload(now.as_secs_f64(), events, Some(rank));
        stream.push(payload, fate, Instant::now());
    }
}

struct Sockets {
    events: zmq::Socket,
    replay: Option<zmq::Socket>,
    topic: String,
    replays_topic: bool,
}

/// A replay question: for all batches from a number on.
struct Question {
    client: Vec<u8>,
    from: u64,
}

/// The sequence number that ends a replay.
const REPLAY_END: u64 = u64::MAX;

impl Sockets {
    fn send(&self, message: &Message) {
        let number = message.number.to_be_bytes();
        let frames = [self.topic.as_bytes(), &number, &message.payload];
        if let Err(error) = self.events.send_multipart(frames, zmq::DONTWAIT) {
            tracing::warn!(%error, "event message not sent");
        }
    }

    /// A question that waits, if there is one. Malformed ones are ignored, as in the real publisher.
    fn replay_question(&self) -> Option<Question> {
        let frames = self.replay.as_ref()?.recv_multipart(zmq::DONTWAIT).ok()?;
        let [client, delimiter, start] = <[Vec<u8>; 3]>::try_from(frames).ok()?;
        let from = <[u8; 8]>::try_from(start.as_slice()).ok().map(u64::from_be_bytes)?;
        delimiter.is_empty().then_some(Question { client, from })
    }

    fn answer_replay<'a>(&self, question: &Question, streams: impl Iterator<Item = &'a Stream>) {
        let Some(socket) = &self.replay else { return };
        for message in streams.flat_map(|stream| stream.kept_from(question.from)) {
            self.answer(socket, &question.client, self.topic.as_bytes(), message.number, &message.payload);
        }
        self.answer(socket, &question.client, b"", REPLAY_END, b"");
    }

    fn answer(&self, socket: &zmq::Socket, client: &[u8], topic: &[u8], number: u64, payload: &[u8]) {
        let number = number.to_be_bytes();
        let sent = if self.replays_topic {
            socket.send_multipart([client, b"", topic, &number, payload], zmq::DONTWAIT)
        } else {
            socket.send_multipart([client, b"", &number, payload], zmq::DONTWAIT)
        };
        if let Err(error) = sent {
            tracing::warn!(%error, "replay answer not sent");
        }
    }
}
