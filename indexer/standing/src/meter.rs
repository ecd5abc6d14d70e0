//! What decisions and reports tell of an endpoint and its ranks: shared, written by reports, read by every decision.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use warmpath_kv::Millis;

use super::fading::Fading;
use super::outlier::{Heard, Outlier, Outliers, Standing};
use super::speed::{FirstToken, Pace, SpeedWindow};

/// Work given lately counts half after this long: a pause between two turns of a conversation.
const RECENT_HALF_LIFE_MS: f64 = 30_000.0;
/// More than any endpoint is given in some minutes.
const RECENT_TOKENS_MAX: f64 = 1e12;
/// Share of its load that an endpoint takes in its first moment.
const RAMP_MIN: f64 = 0.1;

/// Of one rank.
#[derive(Debug)]
pub struct RankMeter {
    speed: Mutex<SpeedWindow>,
    /// c, as bits of a float: worked out now and then, with that of its fellows.
    slowness: AtomicU64,
    recent: Mutex<Fading>,
    /// Number of the last decision that gave it a prompt of which nobody held anything.
    last_cold: AtomicU64,
}

/// Of one endpoint.
#[derive(Debug, Default)]
pub struct EndpointMeter {
    outlier: Mutex<Outlier>,
    /// Since when it may be chosen, in milliseconds.
    since: AtomicU64,
    draining: AtomicBool,
    /// When that was ordered, in milliseconds since 1970; 0: it never was. Kept while an order is taken.
    ordered_at: Mutex<u64>,
}

// === impl RankMeter ===

impl RankMeter {
    /// A first token came at `at`.
    pub fn note_first_token(&self, token: FirstToken, at: Millis) {
        self.speed.lock().note(token, at);
    }

    /// First tokens of late that were seen here, with when they were.
    pub fn first_tokens(&self) -> Vec<(Millis, FirstToken)> {
        self.speed.lock().own().collect()
    }

    /// Forgets the first tokens that a peer told of.
    pub fn forget_first_tokens(&self, by: NonZeroU32) {
        self.speed.lock().forget(by);
    }

    pub fn pace(&self, now: Millis) -> Option<Pace> {
        self.speed.lock().pace(now)
    }

    /// c: reference speed ÷ its speed.
    pub fn slowness(&self) -> f64 {
        f64::from_bits(self.slowness.load(Ordering::Relaxed))
    }

    pub fn set_slowness(&self, slowness: f64) {
        self.slowness.store(slowness.to_bits(), Ordering::Relaxed);
    }

    /// R: tokens that it was given to compute lately.
    pub fn recent_tokens(&self, now: Millis) -> f64 {
        self.recent.lock().at(now, RECENT_HALF_LIFE_MS)
    }

    /// A decision gave it this much to compute; `cold`: the number of that decision, where nobody held any of it.
    pub fn note_pick(&self, tokens: u64, cold: Option<u64>, now: Millis) {
        let mut recent = self.recent.lock();
        *recent = recent.plus(tokens as f64, RECENT_TOKENS_MAX, now, RECENT_HALF_LIFE_MS);
        if let Some(number) = cold {
            self.last_cold.store(number, Ordering::Relaxed);
        }
    }

    pub fn last_cold(&self) -> u64 {
        self.last_cold.load(Ordering::Relaxed)
    }
}

impl Default for RankMeter {
    fn default() -> Self {
        Self {
            speed: Mutex::default(),
            slowness: AtomicU64::new(1f64.to_bits()),
            recent: Mutex::default(),
            last_cold: AtomicU64::new(0),
        }
    }
}

// === impl EndpointMeter ===

impl EndpointMeter {
    /// It may be chosen from now on: it is new, or it is back.
    pub fn begin(&self, now: Millis) {
        self.since.store(now.0, Ordering::Relaxed);
    }

    /// It refused connections and takes them again: should it be ejected, it may be tried at once.
    pub fn come_back(&self, now: Millis) {
        self.outlier.lock().come_back(now);
        self.begin(now);
    }

    /// r: the share of its load that it takes yet, which grows to 1 in `slow_start_ms`.
    pub fn ramp(&self, slow_start_ms: u64, now: Millis) -> f64 {
        let age = now.since(Millis(self.since.load(Ordering::Relaxed)));
        if age >= slow_start_ms {
            return 1.0;
        }
        RAMP_MIN + (1.0 - RAMP_MIN) * (age as f64 / slow_start_ms as f64)
    }

    /// It gets nothing new.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Takes an operator's order that is given here at this moment. It is the latest, whatever clock the one before came from:
    /// so it holds, and the time that is returned with it is later. True: it changes something.
    pub fn order_draining_now(&self, draining: bool, now_unix_ms: u64) -> (bool, u64) {
        let mut ordered_at = self.ordered_at.lock();
        *ordered_at = now_unix_ms.max(ordered_at.saturating_add(1));
        (self.draining.swap(draining, Ordering::Relaxed) != draining, *ordered_at)
    }

    /// Takes an operator's order that was given to a peer; the latest holds. False: it changes nothing.
    pub fn order_draining(&self, draining: bool, at_unix_ms: u64) -> bool {
        let mut ordered_at = self.ordered_at.lock();
        if at_unix_ms < *ordered_at {
            return false;
        }
        *ordered_at = at_unix_ms;
        self.draining.swap(draining, Ordering::Relaxed) != draining
    }

    /// The last order and when it was given, if there was one.
    pub fn draining_order(&self) -> Option<(bool, u64)> {
        let ordered_at = self.ordered_at.lock();
        (*ordered_at > 0).then(|| (self.is_draining(), *ordered_at))
    }

    /// Whether it has not failed too much.
    pub fn admits(&self, now: Millis) -> bool {
        self.outlier.lock().admits(now)
    }

    pub fn standing(&self) -> Standing {
        self.outlier.lock().standing()
    }

    /// Whether it failed so lately that its answers say something.
    pub fn has_failed_lately(&self, now: Millis) -> bool {
        self.outlier.lock().has_failed_lately(now)
    }

    /// Takes over from a peer that it is ejected, where it is trusted here. True: it was.
    pub fn take_ejection(&self, until: Millis, times: u32) -> bool {
        self.outlier.lock().take_ejection(until, times)
    }

    /// Takes in what was heard of it. Its new standing, where that changes whether it is ejected.
    pub fn hear(&self, heard: Heard, config: Outliers, now: Millis) -> Option<Standing> {
        let mut outlier = self.outlier.lock();
        let changed = outlier.hear(heard, config, now);
        let standing = outlier.standing();
        drop(outlier);
        if changed && matches!(standing, Standing::Trusted { .. }) {
            self.begin(now);
        }
        changed.then_some(standing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_young_endpoint_takes_a_growing_share() {
        let meter = EndpointMeter::default();
        meter.begin(Millis(1000));
        let ramps = [1000, 6000, 11_000, 60_000].map(|now| meter.ramp(10_000, Millis(now)));
        assert_eq!(ramps, [0.1, 0.55, 1.0, 1.0]);
        assert_eq!(meter.ramp(0, Millis(1000)), 1.0, "switched off");
    }

    #[test]
    fn one_that_is_back_is_young_again() {
        let (meter, config) = (EndpointMeter::default(), Outliers { failures: 1, eject_ms: 1000 });
        assert!(meter.hear(Heard::Failed, config, Millis(50_000)).is_some());
        meter.hear(Heard::Picked, config, Millis(51_000));
        assert_eq!(
            meter.hear(Heard::Answered, config, Millis(51_500)),
            Some(Standing::Trusted { failures: 0 })
        );
        assert_eq!(meter.ramp(10_000, Millis(51_500)), RAMP_MIN);
    }

    /// The clock of another indexer may be wrong, by hours or by all that there is; an operator must be heard all the same.
    #[test]
    fn an_order_given_here_is_the_latest_whatever_a_peer_s_clock_said() {
        for ahead in [7_200_000, u64::MAX] {
            let meter = EndpointMeter::default();
            assert!(meter.order_draining(true, ahead));
            let (changed, at) = meter.order_draining_now(false, 1_000);
            assert!(changed && !meter.is_draining() && at >= ahead);
            assert_eq!(meter.draining_order(), Some((false, at)));
            let peer = EndpointMeter::default();
            peer.order_draining(true, ahead);
            assert!(peer.order_draining(false, at), "and so it is for peers");
        }
        let meter = EndpointMeter::default();
        assert_eq!(meter.order_draining_now(true, 1_000), (true, 1_000));
        assert_eq!(meter.order_draining_now(false, 1_000), (true, 1_001), "two in one moment");
    }

    #[test]
    fn one_that_takes_connections_again_is_tried_at_once() {
        let (meter, config) = (EndpointMeter::default(), Outliers { failures: 1, eject_ms: 60_000 });
        meter.hear(Heard::Failed, config, Millis(1000));
        assert!(!meter.admits(Millis(1500)));
        meter.come_back(Millis(1500));
        assert!(meter.admits(Millis(1500)));
        assert_eq!(meter.ramp(10_000, Millis(1500)), RAMP_MIN);
    }

    #[test]
    fn work_fades() {
        let meter = RankMeter::default();
        meter.note_pick(1000, None, Millis(0));
        meter.note_pick(500, Some(7), Millis(30_000));
        assert_eq!(meter.recent_tokens(Millis(30_000)), 1000.0);
        assert_eq!(meter.last_cold(), 7);
    }
}
