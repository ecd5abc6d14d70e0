//! How long a step takes.
//!
//! ```text
//! step = slow · (step_overhead + prefill_tokens / prefill_tokens_per_second + decodes · decode_cost)
//! ```
//!
//! `prefill_tokens` are the prompt tokens computed in the step (cached ones cost nothing), `decodes` the sequences that
//! only add one token. A step of a busy engine thus stretches the gap between two tokens of everyone in it, which is
//! what makes long prompts visible in other requests' latency.

use std::time::Duration;

/// The constants of the formula above.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Paid by every step: scheduling, kernel launches, reading the weights once.
    pub step_overhead: Duration,
    /// Prompt tokens per second beyond the overhead.
    pub prefill_tokens_per_second: f64,
    /// Paid per sequence that decodes one token.
    pub decode_cost: Duration,
}

impl Timing {
    /// Constants under which the load of `tests/load.rs` comes out as published; see `README.md`.
    pub const CALIBRATED: Self = Self {
        step_overhead: Duration::from_millis(10),
        prefill_tokens_per_second: 6500.0,
        decode_cost: Duration::from_micros(250),
    };

    /// Duration of a step with that much work, stretched by `slow` (1.0: as configured).
    pub(super) fn step(&self, prefill_tokens: usize, decodes: usize, slow: f64) -> Duration {
        let prefill = prefill_tokens as f64 / self.prefill_tokens_per_second;
        let decode = self.decode_cost.as_secs_f64() * decodes as f64;
        Duration::from_secs_f64(slow * (self.step_overhead.as_secs_f64() + prefill + decode))
    }
}
