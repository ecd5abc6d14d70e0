//! One turn of the event thread: what a stream works with, and what came of it.

use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use warmpath_kv::{Index, Millis};

/// What a stream works with, for one turn.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) index: &'a RwLock<Index>,
    pub(super) now: Millis,
    /// The same moment by the clock on the wall.
    pub(super) wall: SystemTime,
}

/// Which of a stream's sockets have something to read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ready {
    pub(super) monitor: bool,
    pub(super) replay: bool,
    pub(super) events: bool,
}

/// How much was there to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Yield {
    Nothing,
    /// All of it was read.
    All,
    /// There may be more.
    Part,
}

/// What of a stream's status changed, by how soon others should know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Changed {
    Nothing,
    /// How far it has read: to be told from time to time.
    Progress,
    /// How it stands: to be told at once.
    State,
}

// === impl Turn ===

impl Turn<'_> {
    /// From the engine's time stamp, seconds since 1970, to now.
    pub(super) fn lag_ms(&self, ts: f64) -> Option<i64> {
        let now = self.wall.duration_since(UNIX_EPOCH).ok()?;
        let lag = (now.as_secs_f64() - ts) * 1000.0;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a float to an integer saturates, and milliseconds suffice"
        )]
        (ts > 0.0).then_some(lag as i64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use warmpath_kv::{IndexLimits, KeyHasher};

    use super::*;

    /// The clocks of engines and of this machine may disagree, and jump: that is a figure, and nothing else.
    #[test]
    fn a_lag_by_clocks_that_disagree_is_negative_and_by_none_is_none() {
        let index = RwLock::new(Index::new(KeyHasher::new([1; 16]), IndexLimits::default()));
        let lag_ms = |wall, ts| Turn { index: &index, now: Millis(0), wall }.lag_ms(ts);
        let wall = UNIX_EPOCH + Duration::from_secs(1000);
        assert_eq!(lag_ms(wall, 999.5), Some(500));
        assert_eq!(lag_ms(wall, 4600.0), Some(-3_600_000), "set back by an hour, or the engine's ahead");
        assert_eq!(lag_ms(wall, 0.0), None, "the engine tells no time");
        assert_eq!(lag_ms(UNIX_EPOCH - Duration::from_secs(1), 999.5), None);
        assert_eq!(lag_ms(wall, f64::MAX), Some(i64::MIN));
    }
}
