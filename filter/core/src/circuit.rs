//! Whether to ask the indexer at all.
//!
//! ```text
//!             3 failures in a row                 a probe is answered
//!   Closed ──────────────────────────▶ Open ──────────────────────────▶ Trying
//!     ▲                                 ▲                                │   │
//!     │                                 └──── the one question fails ────┘   │
//!     └───────────────────────── the one question is answered ───────────────┘
//! ```
//!
//! While it is open nobody waits: requests go to the fallback at once. Probes are reports sent from the tick (empty ones
//! if there is nothing to report), the first at once, so that no request ever pays for finding out. An answered probe lets a single question
//! through; only its answer closes the circuit, because an indexer may take reports and yet be too slow for questions.
//! When that question fails the pause doubles, up to [`PROBE_INTERVAL_MS_MAX`].

use crate::limits::{CIRCUIT_FAILURES, PROBE_INTERVAL_MS, PROBE_INTERVAL_MS_MAX};

const PAUSE_US: u64 = PROBE_INTERVAL_MS * 1000;
const PAUSE_US_MAX: u64 = PROBE_INTERVAL_MS_MAX * 1000;
/// A question of which nothing was heard for so long was lost; another may be asked.
const TRIAL_US_MAX: u64 = 2 * PAUSE_US_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { probe_at_us: u64, pause_us: u64 },
    Trying { asked_at_us: Option<u64>, pause_us: u64 },
}

/// The state of one worker. Times are monotonic microseconds given by the caller.
#[derive(Clone, Debug)]
pub struct Circuit {
    state: State,
}

impl Default for Circuit {
    fn default() -> Self {
        Self { state: State::Closed { failures: 0 } }
    }
}

impl Circuit {
    /// May this request ask? In a trial only one may, until its end is told.
    pub fn may_ask(&mut self, now_us: u64) -> bool {
        match &mut self.state {
            State::Closed { .. } => true,
            State::Open { .. } => false,
            State::Trying { asked_at_us, .. } => {
                let free = asked_at_us.is_none_or(|at| now_us.saturating_sub(at) > TRIAL_US_MAX);
                if free {
                    *asked_at_us = Some(now_us);
                }
                free
            }
        }
    }

    /// A question was answered.
    pub fn answered(&mut self) {
        self.state = State::Closed { failures: 0 };
    }

    /// A question failed, or took too long.
    pub fn failed(&mut self, now_us: u64) {
        self.state = match self.state {
            State::Closed { failures } if failures + 1 < CIRCUIT_FAILURES => {
                State::Closed { failures: failures + 1 }
            }
            // The first probe goes at once: perhaps the questions were too large, and nothing is wrong.
            State::Closed { .. } => State::Open { probe_at_us: now_us, pause_us: PAUSE_US },
            State::Trying { pause_us, .. } => {
                let pause_us = (2 * pause_us).min(PAUSE_US_MAX);
                State::Open { probe_at_us: now_us + pause_us, pause_us }
            }
            open @ State::Open { .. } => open,
        };
    }

    /// A question ended without telling anything: its client went away.
    pub fn abandoned(&mut self) {
        if let State::Trying { asked_at_us, .. } = &mut self.state {
            *asked_at_us = None;
        }
    }

    /// A probe must be sent now. The next one is due a pause later.
    pub fn take_probe(&mut self, now_us: u64) -> bool {
        match &mut self.state {
            State::Open { probe_at_us, pause_us } if *probe_at_us <= now_us => {
                *probe_at_us = now_us + *pause_us;
                true
            }
            _ => false,
        }
    }

    /// A report was answered.
    pub fn probed(&mut self) {
        if let State::Open { pause_us, .. } = self.state {
            self.state = State::Trying { asked_at_us: None, pause_us };
        }
    }

    /// Nobody is asked.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_at(now_us: u64) -> Circuit {
        let mut circuit = Circuit::default();
        for _ in 0..CIRCUIT_FAILURES {
            assert!(circuit.may_ask(now_us));
            circuit.failed(now_us);
        }
        assert!(circuit.is_open());
        circuit
    }

    #[test]
    fn only_failures_in_a_row_open_it() {
        let mut circuit = Circuit::default();
        for _ in 0..10 {
            for _ in 1..CIRCUIT_FAILURES {
                circuit.failed(0);
            }
            circuit.answered();
        }
        assert!(circuit.may_ask(0) && !circuit.is_open());
    }

    #[test]
    fn while_open_nobody_asks_and_probes_keep_their_distance() {
        let mut circuit = open_at(1000);
        assert!(!circuit.may_ask(1000) && !circuit.may_ask(u64::MAX));
        assert!(circuit.take_probe(1000));
        assert!(!circuit.take_probe(1000 + PAUSE_US - 1));
        assert!(circuit.take_probe(1000 + PAUSE_US));
        assert!(!circuit.take_probe(1000 + 2 * PAUSE_US - 1));
    }

    #[test]
    fn an_answered_probe_lets_one_question_through_and_its_answer_all() {
        let mut circuit = open_at(0);
        circuit.probed();
        assert!(circuit.may_ask(1) && !circuit.may_ask(2));
        circuit.answered();
        assert!(circuit.may_ask(3) && circuit.may_ask(3));
    }

    #[test]
    fn a_failed_trial_doubles_the_pause_up_to_the_limit() {
        let mut circuit = open_at(0);
        let mut now = 0;
        for pause in [2, 4, 8, 16, 32, 32].map(|n| n * PAUSE_US) {
            circuit.probed();
            assert!(circuit.may_ask(now));
            circuit.failed(now);
            assert!(!circuit.take_probe(now + pause - 1), "{pause}");
            now += pause;
            assert!(circuit.take_probe(now), "{pause}");
        }
    }

    #[test]
    fn a_trial_whose_end_is_never_told_does_not_block_the_next() {
        let mut circuit = open_at(0);
        circuit.probed();
        assert!(circuit.may_ask(0));
        circuit.abandoned();
        assert!(circuit.may_ask(0) && !circuit.may_ask(TRIAL_US_MAX));
        assert!(circuit.may_ask(TRIAL_US_MAX + 1));
    }
}
