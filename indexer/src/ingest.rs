//! The event sockets of all engines, on one OS thread of their own.
//!
//! In: which streams there are ([`Ingest::add_stream`], [`Ingest::remove_stream`]). Out: changes of the [`Index`], and
//! a [`StreamStatus`] per stream. The thread owns every socket and every [`warmpath_kv::Sequencer`]; it only moves
//! bytes. What they mean is decided in `warmpath-kv`.
//!
//! ```text
//! SUB ──────────┐                    ┌─▶ decode ─▶ Index
//! monitor ──────┼─▶ Input ─▶ Sequencer ─▶ Action ─┼─▶ Index::clear
//! DEALER replay ┘                    └─▶ a new DEALER
//! ```
//!
//! A stream is known by its own connection; topics are not looked at, and the rank that a message names only where one socket
//! carries those of several. We connect and the engine binds, which it does
//! only where its endpoint holds `*` or `::`. Engines that connect to a collector are not supported yet: such an
//! engine shows as a stream without a connection, and the log says so.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Mutex, RwLock};
use thiserror::Error;
use tokio::sync::oneshot;
use warmpath_kv::index::image::Gathered;
use warmpath_kv::{Index, SequencerConfig, StreamId};

use crate::clock::Clock;

mod digest;
mod driver;
mod frames;
mod mailbox;
pub mod metrics;
mod ranks;
mod sockets;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod turn;
mod wake;
mod warnings;

pub use digest::Digest;
pub use status::StreamStatus;

use driver::Driver;
use mailbox::{Found, Mailbox, Question};
use status::Board;
use wake::Waker;

/// The thread takes a turn every 50 ms at least, and a few seconds for one where it opens the sockets of a whole fleet.
/// What has not in this time, in milliseconds, never will.
const TURN_MS_MAX: u64 = 60_000;

/// How the sockets are driven.
#[derive(Clone, Copy, Debug, Default)]
pub struct IngestConfig {
    /// Patience of each stream's sequencer; `has_replay` is set per stream.
    pub sequencer: SequencerConfig,
}

/// One stream to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    pub id: StreamId,
    /// `ip:port` of the endpoint, for logs and metrics.
    pub endpoint: String,
    /// Data-parallel rank, for logs and metrics.
    pub rank: u32,
    /// ZeroMQ endpoint of the engine's event publisher, as seen from here: `tcp://10.0.0.7:5557`.
    pub events: String,
    /// ZeroMQ endpoint of its replay socket.
    pub replay: Option<String>,
    /// The addresses are those of all ranks: of what comes, only what names this one is the stream's.
    pub shared: bool,
    /// Base model served: the namespace of the stream's blocks.
    pub model: String,
}

#[cfg(test)]
impl StreamSpec {
    /// Of an engine that is not there.
    fn of_nobody(id: StreamId) -> Self {
        Self {
            id,
            endpoint: "127.0.0.1:1".to_owned(),
            rank: 0,
            events: "tcp://127.0.0.1:1".to_owned(),
            replay: None,
            shared: false,
            model: "m".to_owned(),
        }
    }
}

/// A stream that the index holds already, from an image: it goes on from there when its engine is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumable {
    /// In the index, until it is followed; no stream of the fleet has it.
    pub id: StreamId,
    pub endpoint: String,
    pub rank: u32,
    pub model: String,
    /// The last batch of the image, the digest of its payload, and when the engine made it.
    pub seq: u64,
    pub digest: Digest,
    pub made_us: u64,
}

/// What a stream held after a batch.
#[derive(Debug)]
pub struct Taken {
    pub seq: u64,
    /// Of the batch's payload.
    pub digest: Digest,
    /// When the engine made the batch, by its own clock, in microseconds since 1970; 0: it did not say.
    pub made_us: u64,
    pub gathered: Gathered,
}

/// Why a call did not reach the thread.
#[derive(Debug, Error)]
pub enum IngestError {
    #[error("the event thread could not be set up: {0}")]
    Setup(#[source] std::io::Error),
    #[error("the event thread has ended")]
    Ended,
}

/// A running event thread. Dropping it ends the thread.
pub struct Ingest {
    mailbox: Arc<Mailbox>,
    waker: Waker,
    index: Arc<RwLock<Index>>,
    board: Arc<Board>,
    clock: Clock,
    /// Streams that nobody has asked to follow yet.
    resumable: Mutex<Vec<Resumable>>,
    wanted: Mutex<Wanted>,
    thread: Option<JoinHandle<()>>,
}

/// The streams that there are.
#[derive(Debug)]
struct Wanted {
    streams: BTreeMap<StreamId, StreamSpec>,
    /// They wait to be followed until it is known what the index begins with.
    are_held: bool,
}

/// Starts the event thread, which changes `index`. `resumable`: what the index holds from images.
///
/// # Errors
/// Where the system gives no thread or no socket pair.
pub fn start(
    config: IngestConfig,
    index: Arc<RwLock<Index>>,
    clock: Clock,
    resumable: Vec<Resumable>,
) -> Result<Ingest, IngestError> {
    let ingest = start_held(config, index, clock)?;
    *ingest.resumable.lock() = resumable;
    ingest.wanted.lock().are_held = false;
    Ok(ingest)
}

/// Starts the event thread, which follows no stream before [`Ingest::begin_with`].
///
/// # Errors
/// As [`start`].
pub fn start_held(
    config: IngestConfig,
    index: Arc<RwLock<Index>>,
    clock: Clock,
) -> Result<Ingest, IngestError> {
    let mailbox = Arc::new(Mailbox::default());
    let (waker, wakeup) = wake::pair().map_err(IngestError::Setup)?;
    let board = Arc::new(Board::default());
    board.turn(clock.now());
    let driver =
        Driver::new(config, Arc::clone(&index), clock, Arc::clone(&board), Arc::clone(&mailbox), wakeup);
    let thread = std::thread::Builder::new()
        .name("kv-events".to_owned())
        .spawn(move || driver.run())
        .map_err(IngestError::Setup)?;
    let wanted = Mutex::new(Wanted { streams: BTreeMap::new(), are_held: true });
    let resumable = Mutex::default();
    Ok(Ingest { mailbox, waker, index, board, clock, resumable, wanted, thread: Some(thread) })
}

// === impl Ingest ===

impl Ingest {
    /// Begins to follow a stream.
    ///
    /// # Errors
    /// Where the thread has ended; the stream is not followed then.
    pub fn add_stream(&self, spec: StreamSpec) -> Result<(), IngestError> {
        let mut wanted = self.wanted.lock();
        let are_held = wanted.are_held;
        wanted.streams.insert(spec.id, spec.clone());
        if are_held { Ok(()) } else { self.follow(spec) }
    }

    /// Follows no stream from now on, and changes the index no more, until [`Self::begin_with`] begins anew with all of them.
    ///
    /// # Errors
    /// Where the thread has ended.
    pub async fn hold(&self) -> Result<(), IngestError> {
        let (done, is_done) = oneshot::channel();
        {
            let mut wanted = self.wanted.lock();
            wanted.are_held = true;
            for id in wanted.streams.keys() {
                self.mailbox.forget(*id)?;
            }
            self.told(self.mailbox.tell_when_done(done))?;
        }
        is_done.await.map_err(|_| IngestError::Ended)
    }

    /// Puts this index in the place of the one before, and begins to follow the streams that are held. `resumable`: what it holds
    /// from images.
    pub fn begin_with(&self, index: Index, resumable: Vec<Resumable>) {
        // Until all are followed, so that none can be removed between the two.
        let mut wanted = self.wanted.lock();
        if !std::mem::take(&mut wanted.are_held) {
            return;
        }
        let before = self.index.write().become_other(index);
        *self.resumable.lock() = resumable;
        for spec in wanted.streams.values() {
            if let Err(error) = self.follow(spec.clone()) {
                let StreamSpec { endpoint, rank, .. } = spec;
                tracing::error!(%endpoint, rank, %error, "events are not read; ranked by load only");
            }
        }
        drop(wanted);
        drop(before);
    }

    /// Whether streams wait for [`Self::begin_with`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.wanted.lock().are_held
    }

    fn follow(&self, spec: StreamSpec) -> Result<(), IngestError> {
        let id = spec.id;
        let resumed = self.resume(&spec);
        if resumed.is_none() {
            self.index.write().add_stream(id, &spec.model);
        }
        self.told(self.mailbox.follow(spec, resumed)).inspect_err(|_| self.index.write().remove_stream(id))
    }

    /// Gives the stream what the index holds of it already, if that can be proven.
    fn resume(&self, spec: &StreamSpec) -> Option<Resumable> {
        let found = {
            let mut resumable = self.resumable.lock();
            let at =
                resumable.iter().position(|saved| saved.endpoint == spec.endpoint && saved.rank == spec.rank);
            at.map(|at| resumable.swap_remove(at))?
        };
        let mut index = self.index.write();
        let is_usable = found.model == spec.model && spec.replay.is_some();
        if is_usable && index.rename_stream(found.id, spec.id) {
            return Some(found);
        }
        index.remove_stream(found.id);
        None
    }

    /// Drops what the index holds of streams that nobody asked to follow. Returns how many those are.
    pub fn forget_resumable(&self) -> usize {
        let left = std::mem::take(&mut *self.resumable.lock());
        for saved in &left {
            self.index.write().remove_stream(saved.id);
        }
        left.len()
    }

    /// What a stream holds now; `None` where it is not live or not whole.
    pub async fn image(&self, id: StreamId) -> Option<Taken> {
        let (answer, answered) = oneshot::channel();
        self.told(self.mailbox.ask(Question { stream: id, answer })).ok()?;
        answered.await.ok()?
    }

    /// Forgets a stream. Its blocks are gone when this returns; events that are still on their way are ignored.
    ///
    /// # Errors
    /// Where the thread has ended, and its sockets with it.
    pub fn remove_stream(&self, id: StreamId) -> Result<(), IngestError> {
        let mut wanted = self.wanted.lock();
        wanted.streams.remove(&id);
        if wanted.are_held {
            return Ok(());
        }
        self.index.write().remove_stream(id);
        self.told(self.mailbox.forget(id))
    }

    /// Nothing that is held of the stream is to be believed: its engine computed blocks and told of none.
    ///
    /// # Errors
    /// Where the thread has ended.
    pub fn contradict(&self, id: StreamId) -> Result<(), IngestError> {
        self.told(self.mailbox.tell(id, Found::Contradicted))
    }

    /// The stream's engine sleeps, so its cache is empty.
    ///
    /// # Errors
    /// Where the thread has ended.
    pub fn asleep(&self, id: StreamId) -> Result<(), IngestError> {
        self.told(self.mailbox.tell(id, Found::Asleep))
    }

    /// Every stream, by id.
    #[must_use]
    pub fn status(&self) -> Vec<StreamStatus> {
        self.board.snapshot()
    }

    /// Whether the thread still runs, and does not stand still. If not, it failed: streams are not followed any more.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let runs = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        runs && self.stood_ms() < TURN_MS_MAX
    }

    /// Since its last turn.
    fn stood_ms(&self) -> u64 {
        self.clock.now().since(self.board.turned_at())
    }

    /// What metrics are made from; register it with [`prometheus_client::registry::Registry::register_collector`].
    #[must_use]
    pub fn collector(&self) -> metrics::Collector {
        metrics::Collector::new(Arc::clone(&self.board), Arc::clone(&self.index))
    }

    /// Ends the thread and waits for it; it needs one turn of its loop, some milliseconds.
    pub fn shutdown(mut self) {
        self.end();
    }

    /// Wakes the thread where something was put into its mailbox.
    fn told(&self, put: Result<(), IngestError>) -> Result<(), IngestError> {
        put.inspect(|()| self.waker.wake())
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.mailbox.end();
        self.waker.wake();
        if thread.join().is_err() {
            tracing::error!("the event thread had panicked; prefix hits are those of that moment");
        }
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Ingest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingest").field("board", &self.board).finish_non_exhaustive()
    }
}
