//! Readiness by named guards: ready is when no guard is left, so nothing can be forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

/// What the program waits for before it calls itself ready.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<State>);

#[derive(Debug)]
struct State {
    pending: Mutex<Vec<(u64, String)>>,
    draining: AtomicBool,
    started: Instant,
}

/// Holds readiness back until it is ended, or dropped.
#[derive(Debug)]
pub struct ReadyGuard {
    state: Arc<State>,
    number: u64,
    /// How the wait ended.
    result: &'static str,
}

/// Of a wait that nobody ended: whoever waited was cut short.
const GIVEN_UP: &str = "given up";

// === impl Readiness ===

impl Readiness {
    pub fn new() -> Self {
        Self(Arc::new(State {
            pending: Mutex::new(Vec::new()),
            draining: AtomicBool::new(false),
            started: Instant::now(),
        }))
    }

    /// Registers something that has to happen first.
    pub fn wait_for(&self, name: impl Into<String>) -> ReadyGuard {
        let mut pending = self.0.pending.lock();
        let number = pending.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
        pending.push((number, name.into()));
        ReadyGuard { state: self.0.clone(), number, result: GIVEN_UP }
    }

    /// Not ready from now on: the program is on its way out.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    /// What is still waited for; empty means ready.
    pub fn pending(&self) -> Vec<String> {
        if self.0.draining.load(Ordering::Relaxed) {
            return vec!["draining".to_owned()];
        }
        self.0.pending.lock().iter().map(|(_, name)| name.clone()).collect()
    }
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

// === impl ReadyGuard ===

impl ReadyGuard {
    /// The wait is over. `result`: how it ended, for the log, such as `answered` or `late`.
    pub fn end(mut self, result: &'static str) {
        self.result = result;
    }
}

impl Drop for ReadyGuard {
    fn drop(&mut self) {
        let mut pending = self.state.pending.lock();
        let Some(position) = pending.iter().position(|(number, _)| *number == self.number) else { return };
        let (_, name) = pending.remove(position);
        let waiting = pending.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ");
        let elapsed_ms = self.state.started.elapsed().as_millis();
        if waiting.is_empty() {
            tracing::info!(waited_for = name, result = self.result, elapsed_ms, "ready");
        } else {
            tracing::info!(waited_for = name, result = self.result, elapsed_ms, waiting, "not ready yet");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_the_last_guard_is_gone_and_never_again_after_the_drain() {
        let readiness = Readiness::new();
        let (first, second) = (readiness.wait_for("grpc"), readiness.wait_for("model qwen3"));
        assert_eq!(readiness.pending(), ["grpc", "model qwen3"]);
        drop(first);
        assert_eq!(readiness.pending(), ["model qwen3"]);
        drop(second);
        assert!(readiness.pending().is_empty());
        readiness.drain();
        assert_eq!(readiness.pending(), ["draining"]);
    }
}
