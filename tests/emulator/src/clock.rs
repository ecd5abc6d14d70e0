//! Engine time against real time.

use std::time::Duration;

use tokio::time::Instant;

/// Maps between the two: engine time runs `speedup` times faster and starts at zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
    speedup: f64,
}

impl Clock {
    pub(crate) fn start(speedup: f64) -> Self {
        Self { start: Instant::now(), speedup }
    }

    /// Engine time now.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed().mul_f64(self.speedup)
    }

    /// When it is `at` in engine time. Computed from the start, so that errors do not add up.
    pub(crate) fn instant(&self, at: Duration) -> Instant {
        self.start + at.div_f64(self.speedup)
    }
}
