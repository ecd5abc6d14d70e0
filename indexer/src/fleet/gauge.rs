//! What one rank's engine last said of its load, and how its cache turned over lately.

use parking_lot::Mutex;
use warmpath_kv::Millis;

use warmpath_standing::Turnover;

/// One reading, already set against our own count at that moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub at: Millis,
    pub running: u64,
    pub waiting: u64,
    /// Share of the KV cache in use by running sequences, 0 to 1.
    pub kv_usage: f64,
    /// p: how likely a new block evicts another, 0 to 1.
    pub pressure: f64,
    /// Sequences it had that no decision of ours accounts for: other ways to the engine.
    pub foreign_sequences: u64,
    /// Those of them that waited.
    pub foreign_waiting: u64,
    /// Tokens that its KV memory has for new sequences; None: not told.
    pub room_tokens: Option<u64>,
}

/// Written by the scraper, read by every decision.
#[derive(Debug, Default)]
pub struct EngineGauge {
    sample: Mutex<Option<Sample>>,
    turnover: Mutex<Turnover>,
}

impl EngineGauge {
    pub fn set(&self, sample: Sample) {
        *self.sample.lock() = Some(sample);
    }

    /// The share of blocks stored lately that others had to leave for, now that `blocks` are held and `evicted` have left.
    pub fn turn_over(&self, blocks: u64, evicted: u64, now: Millis) -> Option<f64> {
        let mut turnover = self.turnover.lock();
        turnover.note(blocks, evicted, now);
        turnover.evicted_share()
    }

    /// The last reading, whatever its age.
    pub fn last(&self) -> Option<Sample> {
        *self.sample.lock()
    }

    /// The last reading, unless it is older than `max_age_ms`.
    pub fn fresh(&self, now: Millis, max_age_ms: u64) -> Option<Sample> {
        self.last().filter(|sample| now.since(sample.at) <= max_age_ms)
    }
}
