//! Holds readiness back until every source has named its endpoints and every event stream has been read up, or the warm-up
//! deadline has passed.
//!
//! A stream that is behind costs hits, not correctness, so the deadline is short and what is missing is only logged.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;
use warmpath_kv::{StreamId, Trust};

use crate::fleet::{Snapshot, View};
use crate::ingest::{Ingest, StreamStatus};
use crate::lifecycle::{Readiness, ReadyGuard};
use crate::mirror::MirrorMetrics;
use crate::mirror::metrics::Restore;

#[cfg(test)]
mod tests;

/// How often streams are looked at.
const BEAT: Duration = Duration::from_millis(20);

/// Watches the streams there are until the program is ready.
pub struct Warmup {
    pub view: Arc<View>,
    /// Sources of endpoints that there are.
    pub listings: usize,
    pub ingest: Arc<Ingest>,
    pub end: Instant,
    pub mirror: MirrorMetrics,
}

/// What is waited for.
struct Awaited {
    readiness: Readiness,
    /// Until every source has named its endpoints.
    fleet: Option<ReadyGuard>,
    listings: usize,
    /// Streams that are not read up.
    streams: HashMap<StreamId, Stream>,
    /// Places that were looked at.
    seen: HashSet<StreamId>,
}

/// One that is not read up.
struct Stream {
    has_replay: bool,
    held: ReadyGuard,
}

// === impl Warmup ===

impl Warmup {
    /// Runs until `stop`; `fleet` is held until every source has named its endpoints.
    pub async fn run(self, readiness: Readiness, fleet: ReadyGuard, stop: CancellationToken) {
        let mut awaited = Awaited::new(readiness, fleet, self.listings);
        let end = self.end;
        let mut beats = interval(BEAT);
        loop {
            awaited.look(&self.view.current(), &self.ingest.status());
            if awaited.is_empty() {
                break;
            }
            if Instant::now() >= end {
                awaited.give_up();
                break;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                _ = beats.tick() => {}
            }
        }
        drop(awaited);
        // Endpoints that are found by name may come later than those that are configured, but not later than this.
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(end) => {}
        }
        self.mirror.count_restored(Restore::Unclaimed, self.ingest.forget_resumable());
        stop.cancelled().await;
    }
}

// === impl Awaited ===

impl Awaited {
    fn new(readiness: Readiness, fleet: ReadyGuard, listings: usize) -> Self {
        let (streams, seen) = (HashMap::new(), HashSet::new());
        Self { readiness, fleet: Some(fleet), listings, streams, seen }
    }

    /// Takes in which streams there are, and how far they are. What has come is waited for too, and what has gone is not.
    fn look(&mut self, fleet: &Snapshot, statuses: &[StreamStatus]) {
        for (_, stream) in self.streams.extract_if(|place, _| fleet.by_place(*place).is_none()) {
            stream.held.end("gone");
        }
        for endpoint in &fleet.endpoints {
            for (number, rank) in (0..).zip(&endpoint.ranks) {
                if !self.seen.insert(rank.place) {
                    continue;
                }
                let Some(source) = endpoint.spec.source(number) else { continue };
                let held = self.readiness.wait_for(format!("stream {}/{number}", endpoint.name));
                let stream = Stream { has_replay: source.replay.is_some(), held };
                self.streams.insert(rank.place, stream);
            }
        }
        // Not before their streams have guards of their own.
        if fleet.listed >= self.listings
            && let Some(fleet) = self.fleet.take()
        {
            fleet.end("named");
        }
        for status in statuses {
            let Some(stream) = self.streams.get(&status.id) else { continue };
            if let Some(result) = settled(status, stream.has_replay)
                && let Some(stream) = self.streams.remove(&status.id)
            {
                stream.held.end(result);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.fleet.is_none() && self.streams.is_empty()
    }

    fn give_up(&mut self) {
        if !self.streams.is_empty() {
            let streams = self.streams.len();
            tracing::warn!(streams, "event streams are not read up in time; ready without their hits");
        }
        for (_, stream) in self.streams.drain() {
            stream.held.end("late");
        }
        if let Some(fleet) = self.fleet.take() {
            tracing::warn!("a DNS name of endpoints has given none in time; ready without them");
            fleet.end("late");
        }
    }
}

/// How a stream is if waiting longer would bring nothing: its history is read, or there is none to ask for.
fn settled(status: &StreamStatus, has_replay: bool) -> Option<&'static str> {
    match status.trust {
        Trust::Live => Some("read up"),
        Trust::Degraded(_) => Some("incomplete"),
        Trust::Silent => Some("silent"),
        Trust::Recovering if !has_replay && status.is_connected => Some("connected"),
        Trust::Recovering | Trust::Stale(_) => None,
    }
}
