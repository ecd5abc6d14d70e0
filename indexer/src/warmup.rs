//! Holds readiness back until every event stream has been read up, or the warm-up deadline has passed.
//!
//! A stream that is behind costs hits, not correctness, so the deadline is short and what is missing is only logged.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;
use warmpath_kv::{StreamId, Trust};

use crate::fleet::View;
use crate::ingest::{Ingest, StreamStatus};
use crate::lifecycle::{Readiness, ReadyGuard};
use crate::mirror::MirrorMetrics;
use crate::mirror::metrics::Restore;

/// How often streams are looked at.
const BEAT: Duration = Duration::from_millis(20);

/// Watches the streams there are at the start.
pub struct Warmup {
    pub view: Arc<View>,
    pub ingest: Arc<Ingest>,
    pub end: Instant,
    pub mirror: MirrorMetrics,
}

// === impl Warmup ===

impl Warmup {
    /// Runs until `stop`; `start` is held until every stream has its own guard.
    pub async fn run(self, readiness: Readiness, start: ReadyGuard, stop: CancellationToken) {
        let mut pending: HashMap<StreamId, (ReadyGuard, bool)> = HashMap::new();
        for endpoint in &self.view.current().endpoints {
            for (number, rank) in (0..).zip(&endpoint.ranks) {
                let Some(source) = endpoint.spec.source(number) else { continue };
                let guard = readiness.wait_for(format!("stream {}/{number}", endpoint.name));
                pending.insert(rank.place, (guard, source.replay.is_some()));
            }
        }
        drop(start);
        let end = self.end;
        let mut beats = interval(BEAT);
        while !pending.is_empty() {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = beats.tick() => {}
            }
            for status in self.ingest.status() {
                if pending.get(&status.id).is_some_and(|(_, has_replay)| is_settled(&status, *has_replay)) {
                    pending.remove(&status.id);
                }
            }
            if Instant::now() >= end && !pending.is_empty() {
                let streams = pending.len();
                tracing::warn!(streams, "event streams are not read up in time; ready without their hits");
                pending.clear();
            }
        }
        // Endpoints that are found by name may come later than those that are configured, but not later than this.
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(end) => {}
        }
        self.mirror.count_restored(Restore::Unclaimed, self.ingest.forget_resumable());
        stop.cancelled().await;
    }
}

/// Whether waiting longer would bring nothing: its history is read, or there is none to ask for.
fn is_settled(status: &StreamStatus, has_replay: bool) -> bool {
    match status.trust {
        Trust::Live | Trust::Degraded(_) | Trust::Silent => true,
        Trust::Recovering => !has_replay && status.is_connected,
        Trust::Stale(_) => false,
    }
}
