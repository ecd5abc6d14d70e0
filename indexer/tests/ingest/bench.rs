//! An event thread with its index, and waiting for what must come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use warmpath_indexer::clock::Clock;
use warmpath_indexer::ingest::{self, Ingest, IngestConfig, StreamSpec, StreamStatus};
use warmpath_kv::sequencer::SequencerStats;
use warmpath_kv::{Hits, Index, IndexLimits, KeyHasher, Namespace, SequencerConfig, StreamId};

use crate::engine::Engine;

/// The longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const STREAM: StreamId = StreamId(1);

pub(crate) struct Bench {
    pub(crate) ingest: Ingest,
    pub(crate) index: Arc<RwLock<Index>>,
}

/// Patience of seconds, so that only what a test is about happens.
pub(crate) fn patient() -> SequencerConfig {
    SequencerConfig { probe_ms: 60_000, silent_ms: 60_000, ..SequencerConfig::default() }
}

impl Bench {
    pub(crate) fn start(sequencer: SequencerConfig) -> Self {
        let index = Arc::new(RwLock::new(Index::new(KeyHasher::new([5; 16]), IndexLimits::default())));
        let config = IngestConfig { sequencer };
        let ingest = ingest::start(config, Arc::clone(&index), Clock::start(), Vec::new()).expect("a thread");
        Self { ingest, index }
    }

    /// Follows the engine, with its replay.
    pub(crate) fn follow(&self, id: StreamId, engine: &Engine) {
        self.add(id, &engine.events, Some(&engine.replays));
    }

    pub(crate) fn add(&self, id: StreamId, events: &str, replay: Option<&str>) {
        self.ingest.add_stream(spec(id, 0, events, replay)).expect("the thread runs");
    }

    /// Follows one rank of an engine whose ranks publish on one socket.
    pub(crate) fn follow_shared(&self, id: StreamId, rank: u32, engine: &Engine) {
        let of_rank = spec(id, rank, &engine.events, Some(&engine.replays));
        self.ingest.add_stream(StreamSpec { shared: true, ..of_rank }).expect("the thread runs");
    }

    pub(crate) fn status(&self, id: StreamId) -> Option<StreamStatus> {
        self.ingest.status().into_iter().find(|status| status.id == id)
    }

    /// Counters of [`STREAM`].
    pub(crate) fn stats(&self) -> SequencerStats {
        self.status(STREAM).map(|status| status.sequence).unwrap_or_default()
    }

    /// Trust and its reason, of [`STREAM`].
    pub(crate) fn trust(&self) -> String {
        let trust = self.status(STREAM).map(|status| status.trust);
        trust.map_or_else(String::new, |trust| {
            format!("{} {}", trust.name(), trust.reason()).trim_end().to_owned()
        })
    }

    pub(crate) fn hit(&self, id: StreamId, prompt: &[u32]) -> u32 {
        let index = self.index.read();
        let keys = index.key_plan().keys(&Namespace { model: "m", lora: None, salt: None }, prompt);
        let mut hits = Hits::default();
        index.hits(&keys, &mut hits);
        hits.tokens(id)
    }

    /// Lets the engine answer until the condition holds.
    pub(crate) fn until(&self, engine: &mut Engine, what: &str, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            engine.serve();
            assert!(start.elapsed() < PATIENCE, "{what}; now {:?}", self.ingest.status());
        }
    }

    /// Waits for counters of [`STREAM`]. Its status follows the index by a moment.
    pub(crate) fn until_sequence(
        &self,
        engine: &mut Engine,
        what: &str,
        holds: impl Fn(SequencerStats) -> bool,
    ) {
        self.until(engine, what, |bench| bench.status(STREAM).is_some_and(|status| holds(status.sequence)));
    }

    /// Waits until [`STREAM`] is connected and live.
    pub(crate) fn until_live(&self, engine: &mut Engine) {
        self.until(engine, "live", |bench| {
            bench.trust() == "live" && bench.status(STREAM).is_some_and(|status| status.is_connected)
        });
    }

    /// Publishes until something is received: a subscription takes a moment to reach the publisher.
    pub(crate) fn until_subscribed(&self, engine: &mut Engine) {
        self.until(engine, "connected", |bench| {
            bench.status(STREAM).is_some_and(|status| status.is_connected)
        });
        self.until_published(engine, &[], "received", |bench| {
            bench.status(STREAM).is_some_and(|status| status.sequence.applied > 0)
        });
    }

    /// Publishes the events again and again until the condition holds.
    pub(crate) fn until_published(
        &self,
        engine: &mut Engine,
        events: &[Vec<u8>],
        what: &str,
        holds: impl Fn(&Self) -> bool,
    ) {
        let start = Instant::now();
        while !holds(self) {
            engine.publish(events);
            engine.serve();
            assert!(start.elapsed() < PATIENCE, "{what}; now {:?}", self.ingest.status());
        }
    }
}

fn spec(id: StreamId, rank: u32, events: &str, replay: Option<&str>) -> StreamSpec {
    StreamSpec {
        id,
        endpoint: "127.0.0.1:8000".to_owned(),
        rank,
        events: events.to_owned(),
        replay: replay.map(str::to_owned),
        shared: false,
        model: "m".to_owned(),
    }
}
