//! When a connection that failed is tried again. Pure.
//!
//! ```text
//! ready ──(failed)──▶ waiting 100 ms, 200 ms … 2 s ──(time)──▶ ready ──(worked)──▶ ready, the first pause again
//! ```

use std::time::{Duration, Instant};

/// First pause; doubled up to the longest.
const FIRST: Duration = Duration::from_millis(100);
/// A mirror that is back is used again within this time; meanwhile nobody but the saver waits for it.
const LONGEST: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    /// The last pause, and when it ends.
    pause: Option<(Duration, Instant)>,
}

// === impl Backoff ===

impl Backoff {
    /// How long not to try yet.
    pub(super) fn remaining(&self, now: Instant) -> Option<Duration> {
        let (_, end) = self.pause?;
        end.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    pub(super) fn failed(&mut self, now: Instant) {
        let pause = self.pause.map_or(FIRST, |(pause, _)| (pause * 2).min(LONGEST));
        self.pause = Some((pause, now + pause));
    }

    pub(super) fn worked(&mut self) {
        self.pause = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_success() {
        let mut backoff = Backoff::default();
        let mut now = Instant::now();
        assert_eq!(backoff.remaining(now), None);
        for expected in [100, 200, 400, 800, 1600, 2000, 2000] {
            backoff.failed(now);
            let expected = Duration::from_millis(expected);
            assert_eq!(backoff.remaining(now), Some(expected));
            assert_eq!(backoff.remaining(now + expected), None, "over");
            now += expected;
        }
        backoff.worked();
        backoff.failed(now);
        assert_eq!(backoff.remaining(now), Some(FIRST));
    }
}
