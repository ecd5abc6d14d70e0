//! What became of the requests of a run.

use std::time::Duration;

use crate::replica::Counters;

/// Of one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// When it was first sent.
    pub sent: Option<Duration>,
    /// When its first token came.
    pub first: Option<Duration>,
    /// When its last token came.
    pub last: Option<Duration>,
    /// How often it was sent.
    pub tries: u32,
    /// Every try ended with an error.
    pub failed: bool,
    /// Where it was sent last.
    pub seat: usize,
    /// Tokens asked.
    pub prompt_tokens: u32,
    /// Of them in that replica's cache.
    pub cached: u32,
    /// Of them expected there.
    pub predicted: u32,
}

/// The fleet at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Duration,
    /// Requests that each replica has.
    pub in_flight: Vec<usize>,
    /// Mean share of blocks held.
    pub kv_usage: f64,
    /// Requests that are not admitted yet, in all.
    pub waiting: usize,
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Of which load.
    pub load: String,
    /// Under which rule.
    pub policy: String,
    /// What was sent before is its first wave.
    pub first_wave: Duration,
    /// In the order of the load.
    pub outcomes: Vec<Outcome>,
    /// Tokens of each answer.
    pub outputs: Vec<u32>,
    /// The fleet over time.
    pub samples: Vec<Sample>,
    /// Totals of each replica.
    pub counters: Vec<Counters>,
    /// Requests sent to each replica, those sent again included.
    pub sent: Vec<usize>,
    /// Every request ended, nothing is held or reserved any more, and the pools' invariants hold.
    pub is_consistent: bool,
}

// === impl Outcome ===

impl Outcome {
    /// From the first sending to the first token.
    pub fn ttft(&self) -> Option<Duration> {
        Some(self.first?.saturating_sub(self.sent?))
    }
}
