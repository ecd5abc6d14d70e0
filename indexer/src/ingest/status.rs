//! What the event thread tells others about its streams.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use warmpath_kv::event::Problems;
use warmpath_kv::sequencer::{SequencerStats, Waiting};
use warmpath_kv::{Millis, StaleBy, StreamId, Trust};

/// One stream, as it was at the thread's last turn that changed it.
#[derive(Clone, Debug)]
pub struct StreamStatus {
    pub id: StreamId,
    /// `ip:port`.
    pub endpoint: String,
    pub rank: u32,
    pub trust: Trust,
    pub is_connected: bool,
    /// The number of the last batch applied.
    pub last_seq: Option<u64>,
    /// When the engine made it, by its own clock, in microseconds since 1970; 0: not known.
    pub last_made_us: u64,
    /// Gaps, replays, restarts and so on since the stream was added.
    pub sequence: SequencerStats,
    /// What waits for a replay now.
    pub waiting: Waiting,
    /// What was read since then.
    pub read: ReadStats,
    /// When a batch was last applied; `None`: never.
    pub last_batch_at: Option<Millis>,
    /// Time between the making of the last published batch, by the engine's clock, and its reading, by ours. In
    /// milliseconds; below zero where the clocks differ.
    pub lag_ms: Option<i64>,
    /// Distinct blocks held.
    pub blocks: usize,
    /// Tokens per block; `None` until the first event told.
    pub block_size: Option<u32>,
    /// Why there is no socket, where there is none.
    pub error: Option<String>,
}

/// What was read from one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Batches decoded.
    pub batches: u64,
    /// Their events.
    pub events: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Messages without number and payload.
    pub malformed_messages: u64,
    /// Payloads that are no batch.
    pub undecodable_batches: u64,
    /// Events skipped, by reason.
    pub unknown_events: u64,
    pub malformed_events: u64,
    /// Fields skipped of events that were read.
    pub unknown_fields: u64,
    /// Batches left out because they name another rank than those before, on a socket that should carry one.
    pub other_ranks: u64,
    /// Connections on which the ZeroMQ handshake failed.
    pub handshakes_failed: u64,
}

/// The status of every stream. Written by the event thread, read by anyone.
#[derive(Debug, Default)]
pub(super) struct Board {
    streams: Mutex<BTreeMap<StreamId, StreamStatus>>,
    /// When the event thread last took a turn, in milliseconds since the program started.
    turned_at: AtomicU64,
}

// === impl StreamStatus ===

impl StreamStatus {
    /// Of a stream of which nothing is known yet.
    #[must_use]
    pub fn new(id: StreamId, endpoint: String, rank: u32) -> Self {
        Self {
            id,
            endpoint,
            rank,
            trust: Trust::Recovering,
            is_connected: false,
            last_seq: None,
            last_made_us: 0,
            sequence: SequencerStats::default(),
            waiting: Waiting::default(),
            read: ReadStats::default(),
            last_batch_at: None,
            lag_ms: None,
            blocks: 0,
            block_size: None,
            error: None,
        }
    }
}

// === impl ReadStats ===

impl ReadStats {
    pub(super) fn count_problems(&mut self, problems: Problems) {
        self.unknown_events += u64::from(problems.unknown_events);
        self.malformed_events += u64::from(problems.malformed_events);
        self.unknown_fields += u64::from(problems.unknown_fields);
    }
}

// === impl Board ===

impl Board {
    pub(super) fn snapshot(&self) -> Vec<StreamStatus> {
        self.streams.lock().values().cloned().collect()
    }

    pub(super) fn post(&self, status: StreamStatus) {
        self.streams.lock().insert(status.id, status);
    }

    pub(super) fn remove(&self, id: StreamId) {
        self.streams.lock().remove(&id);
    }

    /// The event thread takes a turn.
    pub(super) fn turn(&self, now: Millis) {
        self.turned_at.store(now.0, Ordering::Relaxed);
    }

    pub(super) fn turned_at(&self) -> Millis {
        Millis(self.turned_at.load(Ordering::Relaxed))
    }

    /// Nobody reads any of them any more.
    pub(super) fn disconnect_all(&self) {
        for status in self.streams.lock().values_mut() {
            status.trust = Trust::Stale(StaleBy::Disconnected);
            status.is_connected = false;
        }
    }
}
