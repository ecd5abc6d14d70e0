//! Which share of the blocks that a cache takes in costs it another one. Pure.
//!
//! In: now and then, the blocks that a stream holds and those that its engine has evicted since it started. Out: of the
//! blocks stored in the last minute, the share that others had to leave for. That is the pressure that a copy of a
//! prefix meets: 0 while there is room, 1 when each new block evicts an old one.

use std::collections::VecDeque;

use warmpath_kv::Millis;

/// What is looked back on.
const WINDOW_MS: u64 = 60_000;
/// Fewer blocks stored than this say nothing.
const STORED_MIN: u64 = 64;
/// Readings closer than this replace each other: a minute of them is kept.
const SPACING_MS: u64 = 1000;

/// Readings of the last minute.
#[derive(Clone, Debug, Default)]
pub struct Turnover(VecDeque<Reading>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Millis,
    blocks: u64,
    evicted: u64,
}

impl Turnover {
    /// What the stream holds now, and what its engine has evicted since it started.
    pub fn note(&mut self, blocks: u64, evicted: u64, now: Millis) {
        let started_anew =
            |last: &Reading| evicted < last.evicted || blocks + (evicted - last.evicted) < last.blocks;
        if self.0.back().is_some_and(started_anew) {
            self.0.clear();
        }
        // The reading before the window is its beginning.
        while self.0.get(1).is_some_and(|second| now.since(second.at) >= WINDOW_MS) {
            self.0.pop_front();
        }
        let is_close = self.0.len() >= 2 && self.0.back().is_some_and(|last| now.since(last.at) < SPACING_MS);
        let reading = Reading { at: now, blocks, evicted };
        match self.0.back_mut() {
            Some(last) if is_close => *last = Reading { at: last.at, ..reading },
            _ => self.0.push_back(reading),
        }
    }

    /// None: too little was stored to tell.
    pub fn evicted_share(&self) -> Option<f64> {
        let (first, last) = (self.0.front()?, self.0.back()?);
        let evicted = last.evicted - first.evicted;
        let stored = (last.blocks + evicted).saturating_sub(first.blocks);
        (stored >= STORED_MIN).then(|| (evicted as f64 / stored as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn share(readings: &[(u64, u64, u64)]) -> Option<f64> {
        let mut turnover = Turnover::default();
        for (at, blocks, evicted) in readings {
            turnover.note(*blocks, *evicted, Millis(*at));
        }
        turnover.evicted_share()
    }

    #[test]
    fn a_cache_that_fills_up_has_no_turnover_and_a_full_one_nothing_else() {
        assert_eq!(share(&[(0, 0, 0), (1000, 500, 0)]), Some(0.0));
        assert_eq!(share(&[(0, 500, 0), (1000, 500, 100)]), Some(1.0));
        assert_eq!(share(&[(0, 500, 0), (1000, 600, 100)]), Some(0.5));
        assert_eq!(share(&[(0, 500, 0), (1000, 520, 20)]), None, "too little to tell");
        assert_eq!(share(&[]), None);
    }

    #[test]
    fn what_is_older_than_a_minute_does_not_count() {
        let full_then_filling = [(0, 500, 0), (10_000, 500, 500), (70_000, 500, 500), (80_000, 700, 500)];
        assert_eq!(share(&full_then_filling), Some(0.0));
    }

    #[test]
    fn a_restart_begins_anew() {
        assert_eq!(share(&[(0, 500, 0), (1000, 500, 400), (2000, 0, 0), (3000, 100, 0)]), Some(0.0));
        assert_eq!(share(&[(0, 500, 9), (1000, 10, 9), (2000, 110, 9)]), Some(0.0), "cleared");
    }

    proptest! {
        #[test]
        fn it_is_a_share_and_takes_bounded_memory(readings in vec((0u64..2000, 0u64..1000, 0u64..1000), 0..500)) {
            let (mut turnover, mut now, mut blocks, mut evicted) = (Turnover::default(), Millis(0), 0u64, 0);
            for (later, stored, left) in readings {
                now = now.plus(later);
                let left = left.min(blocks + stored);
                (blocks, evicted) = (blocks + stored - left, evicted + left);
                turnover.note(blocks, evicted, now);
                prop_assert!(turnover.evicted_share().is_none_or(|share| (0.0..=1.0).contains(&share)));
                prop_assert!(turnover.0.len() <= 64, "{}", turnover.0.len());
            }
        }
    }
}
