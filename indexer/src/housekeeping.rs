//! Ends what has a time: leases of reservations and of speculative blocks. Compares endpoints' speeds now and then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use warmpath_kv::{Index, Millis};

use crate::books::Books;
use crate::clock::Clock;
use crate::decide::metrics::DecideMetrics;
use crate::fleet::{ModelIndex, RankMeter, Snapshot, View, slownesses};

/// Fine enough for leases of seconds.
const BEAT: Duration = Duration::from_millis(100);
/// Beats between comparisons of the endpoints' speeds: a second, in which none learns much.
const BEATS_PER_COMPARISON: u32 = 10;
/// Beats between recounts of the ledger: a recount walks all of it.
const BEATS_PER_CHECK: u32 = 100;

/// Runs until `stop`.
pub async fn run(
    books: Arc<Mutex<Books>>,
    index: Arc<RwLock<Index>>,
    view: Arc<View>,
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
        if beat % BEATS_PER_COMPARISON == 0 {
            compare_speeds(&view.current(), now);
        }
        if beat == 0 && !books.lock().ledger().check() {
            metrics.invariant_violations.inc();
            tracing::error!("the ledger's sums are not the recount of its entries; loads are wrong");
        }
    }
}

/// Works out anew how fast each rank is among those of its model.
fn compare_speeds(fleet: &Snapshot, now: Millis) {
    let mut models: BTreeMap<ModelIndex, Vec<(&RankMeter, f64)>> = BTreeMap::new();
    for endpoint in &fleet.endpoints {
        let ranks = endpoint.ranks.iter().map(|rank| (&*rank.meter, endpoint.spec.capacity.weight()));
        models.entry(endpoint.spec.model).or_default().extend(ranks);
    }
    for ranks in models.values() {
        let fellows: Vec<_> = ranks.iter().map(|(meter, capacity)| (meter.pace(now), *capacity)).collect();
        for ((meter, _), slowness) in ranks.iter().zip(slownesses(&fellows)) {
            meter.set_slowness(slowness);
        }
    }
}
