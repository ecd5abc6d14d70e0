//! Answers without events: an engine that computed a whole block has stored it, and must have told so. Pure.
//!
//! Any batch that comes after a request was decided counts as told, whatever it tells: events come in steps, and a step tells of
//! all that is new. So this finds streams that tell nothing at all any more, for whatever reason: a publisher that died, a cache
//! that is not used, or one that was emptied by a way that tells nobody.

use std::collections::VecDeque;

use warmpath_kv::Millis;

/// How sure it is that an engine computed a whole block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It says itself how much it found in its cache.
    Said,
    /// We expected it to find less than the prompt has; it may have found more.
    Expected,
}

/// Requests of one stream that no batch has followed yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Owed {
    /// When they were decided, the oldest first.
    said: VecDeque<Millis>,
    expected: VecDeque<Millis>,
}

/// So many requests, the first of which was decided so many milliseconds ago: a batch may be late by the time that a
/// replay takes, and one request may be of a kind that stores nothing.
const SAID: (usize, u64) = (3, 5_000);
const EXPECTED: (usize, u64) = (32, 30_000);

// === impl Owed ===

impl Owed {
    pub(super) fn note(&mut self, evidence: Evidence, decided_at: Millis) {
        let (requests, (most, _)) = match evidence {
            Evidence::Said => (&mut self.said, SAID),
            Evidence::Expected => (&mut self.expected, EXPECTED),
        };
        if requests.len() < most {
            let at = requests.partition_point(|earlier| *earlier <= decided_at);
            requests.insert(at, decided_at);
        }
    }

    /// A batch came.
    pub(super) fn heard(&mut self, at: Millis) {
        self.said.retain(|decided| *decided > at);
        self.expected.retain(|decided| *decided > at);
    }

    /// Whether the stream cannot be believed to tell what there is.
    pub(super) fn is_contradicted(&self, now: Millis) -> bool {
        [(&self.said, SAID), (&self.expected, EXPECTED)].into_iter().any(|(requests, (most, ms))| {
            requests.len() >= most && requests.front().is_some_and(|first| now.since(*first) >= ms)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owed(evidence: Evidence, times: &[u64]) -> Owed {
        let mut owed = Owed::default();
        times.iter().for_each(|at| owed.note(evidence, Millis(*at)));
        owed
    }

    #[test]
    fn three_answers_over_five_seconds_that_no_batch_followed_contradict() {
        let mut requests = owed(Evidence::Said, &[2_000, 1_000, 3_000, 4_000]);
        assert!(!requests.is_contradicted(Millis(5_999)));
        assert!(requests.is_contradicted(Millis(6_000)));
        requests.heard(Millis(999));
        assert!(requests.is_contradicted(Millis(6_000)), "it came before them");
        requests.heard(Millis(1_000));
        assert!(!requests.is_contradicted(Millis(60_000)), "two are left, and never a third");
        requests.note(Evidence::Said, Millis(20_000));
        assert!(requests.is_contradicted(Millis(20_000)));
    }

    #[test]
    fn what_was_only_expected_takes_more_and_longer() {
        let times: Vec<u64> = (0..32).collect();
        assert!(!owed(Evidence::Expected, &times[1..]).is_contradicted(Millis(60_000)));
        let requests = owed(Evidence::Expected, &times);
        assert_eq!([29_999, 30_000].map(|now| requests.is_contradicted(Millis(now))), [false, true]);
    }

    #[test]
    fn no_more_is_kept_than_is_needed() {
        let times: Vec<u64> = (0..1_000).collect();
        assert_eq!(owed(Evidence::Said, &times).said.len(), SAID.0);
        assert_eq!(owed(Evidence::Expected, &times).expected.len(), EXPECTED.0);
    }
}
