//! Ends what has a time: leases of reservations and of speculative blocks.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use warmpath_kv::Index;

use crate::books::Books;
use crate::clock::Clock;
use crate::decide::metrics::DecideMetrics;

/// Fine enough for leases of seconds.
const BEAT: Duration = Duration::from_millis(100);
/// Beats between recounts of the ledger: a recount walks all of it.
const BEATS_PER_CHECK: u32 = 100;

/// Runs until `stop`.
pub async fn run(
    books: Arc<Mutex<Books>>,
    index: Arc<RwLock<Index>>,
    clock: Clock,
    metrics: DecideMetrics,
    stop: CancellationToken,
) {
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for beat in (0..BEATS_PER_CHECK).cycle() {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = beats.tick() => {}
        }
        let now = clock.now();
        let expired = books.lock().expire(now);
        metrics.expired.inc_by(expired as u64);
        index.write().expire(now);
        if beat == 0 && !books.lock().ledger().check() {
            metrics.invariant_violations.inc();
            tracing::error!("the ledger's sums are not the recount of its entries; loads are wrong");
        }
    }
}
