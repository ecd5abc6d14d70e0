//! Recent errors of one endpoint, as the part e of its cost.
//!
//! An endpoint that fails at once has the shortest queue of all, so without this it would win every pick. Errors fade
//! with time, so nothing has to bring it back, and a whole fleet that fails is ranked as before.

use parking_lot::Mutex;
use warmpath_kv::Millis;

use super::fading::Fading;

/// What one fresh error costs, in tokens: about one prompt's prefill. A single one hardly matters to the holder of a
/// long prefix; several in a row outweigh any queue.
const TOKENS_PER_ERROR: f64 = 2048.0;
/// Errors that count at most: beyond that, nobody would choose it anyway, and it has to come back in time.
const ERRORS_MAX: f64 = 16.0;
/// Time in which errors lose half of their weight: a restart of a server takes longer, a hiccup less.
const HALF_LIFE_MS: f64 = 10_000.0;

/// Written by reports, read by every decision.
#[derive(Debug, Default)]
pub struct RecentErrors(Mutex<Fading>);

// === impl RecentErrors ===

impl RecentErrors {
    pub fn note(&self, now: Millis) {
        let mut fading = self.0.lock();
        *fading = fading.plus(1.0, ERRORS_MAX, now, HALF_LIFE_MS);
    }

    /// In tokens; 0 without errors.
    pub fn penalty(&self, now: Millis) -> f64 {
        self.0.lock().at(now, HALF_LIFE_MS) * TOKENS_PER_ERROR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_add_up_to_a_limit_and_fade() {
        let errors = RecentErrors::default();
        assert_eq!(errors.penalty(Millis(5)), 0.0);
        errors.note(Millis(1000));
        assert_eq!(errors.penalty(Millis(1000)), TOKENS_PER_ERROR);
        assert_eq!(errors.penalty(Millis(11_000)), TOKENS_PER_ERROR / 2.0);
        for _ in 0..100 {
            errors.note(Millis(11_000));
        }
        assert_eq!(errors.penalty(Millis(11_000)), TOKENS_PER_ERROR * ERRORS_MAX);
        // A minute later, less than half an error is left.
        assert!(errors.penalty(Millis(71_000)) < TOKENS_PER_ERROR / 2.0);
    }
}
