//! What one rank's engine last said of its load.

use parking_lot::Mutex;
use warmpath_kv::Millis;

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
}

/// Written by the scraper, read by every decision.
#[derive(Debug, Default)]
pub struct EngineGauge(Mutex<Option<Sample>>);

impl EngineGauge {
    pub fn set(&self, sample: Sample) {
        *self.0.lock() = Some(sample);
    }

    /// The last reading, whatever its age.
    pub fn last(&self) -> Option<Sample> {
        *self.0.lock()
    }

    /// The last reading, unless it is older than `max_age_ms`.
    pub fn fresh(&self, now: Millis, max_age_ms: u64) -> Option<Sample> {
        self.last().filter(|sample| now.since(sample.at) <= max_age_ms)
    }
}
