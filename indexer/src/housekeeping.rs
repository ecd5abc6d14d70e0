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

/// Beats for which expiry of speculative blocks is put off while somebody else has the index: a second.
const BEATS_PUT_OFF_MAX: u32 = 10;

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
    let mut put_off = 0;
    for beat in (0..BEATS_PER_CHECK).cycle() {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = beats.tick() => {}
        }
        let now = clock.now();
        let expired = books.lock().expire(now);
        metrics.expired.inc_by(expired as u64);
        put_off = expire_blocks(&index, now, put_off);
        if beat % BEATS_PER_COMPARISON == 0 {
            compare_speeds(&view.current(), now);
        }
        if beat == 0 && !books.lock().ledger().check() {
            metrics.invariant_violations.inc();
            tracing::error!("the ledger's sums are not the recount of its entries; loads are wrong");
        }
    }
}

/// Ends what is over in the index, or puts it off: a write that waits keeps all readers waiting too. Returns for how many
/// beats it has been put off by now; not for ever.
fn expire_blocks(index: &RwLock<Index>, now: Millis, put_off: u32) -> u32 {
    let guard = if put_off < BEATS_PUT_OFF_MAX { index.try_write() } else { Some(index.write()) };
    let Some(mut index) = guard else { return put_off + 1 };
    index.expire(now);
    0
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

#[cfg(test)]
mod tests {
    use std::thread;

    use warmpath_kv::{IndexLimits, KeyHasher};

    use super::*;

    #[test]
    fn expiry_waits_for_readers_only_after_some_beats() {
        let index = RwLock::new(Index::new(KeyHasher::new([0; 16]), IndexLimits::default()));
        let reading = index.read();
        let mut put_off = 0;
        for beats in 1..=BEATS_PUT_OFF_MAX {
            put_off = expire_blocks(&index, Millis(0), put_off);
            assert_eq!(put_off, beats);
        }
        thread::scope(|scope| {
            let expiring = scope.spawn(|| expire_blocks(&index, Millis(0), put_off));
            drop(reading);
            assert_eq!(expiring.join().unwrap(), 0);
        });
        assert_eq!(expire_blocks(&index, Millis(0), 3), 0);
    }
}
