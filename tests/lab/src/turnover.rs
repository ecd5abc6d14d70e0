//! Which share of the blocks that a replica stored in the last minute others had to leave for: the indexer's measure of
//! the pressure that a copy meets.

use std::collections::VecDeque;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(60);
/// Fewer blocks stored than this say nothing.
const STORED_MIN: u64 = 64;

/// Readings of the last minute: when, blocks held, blocks evicted since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turnover(VecDeque<(Duration, u64, u64)>);

impl Turnover {
    pub(crate) fn note(&mut self, held: u64, evicted: u64, now: Duration) {
        while self.0.get(1).is_some_and(|(at, _, _)| now.saturating_sub(*at) >= WINDOW) {
            self.0.pop_front();
        }
        self.0.push_back((now, held, evicted));
    }

    /// None: too little was stored to tell.
    pub(crate) fn evicted_share(&self) -> Option<f64> {
        let ((_, held_before, before), (_, held, evicted)) = (self.0.front()?, self.0.back()?);
        let evicted = evicted - before;
        let stored = (held + evicted).saturating_sub(*held_before);
        (stored >= STORED_MIN).then(|| (evicted as f64 / stored as f64).min(1.0))
    }
}
