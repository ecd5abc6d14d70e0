//! The one clock: milliseconds since the program started, as the pure parts take them.

use std::time::Instant;

use warmpath_kv::Millis;

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that reads 0 now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub fn now(&self) -> Millis {
        Millis(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}
