//! A number that fades by half in a given time. Pure.

use warmpath_kv::Millis;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fading {
    value: f64,
    at: Millis,
}

impl Fading {
    /// What is left of it.
    pub(super) fn at(self, now: Millis, half_life_ms: f64) -> f64 {
        self.value * (-(now.since(self.at) as f64) / half_life_ms).exp2()
    }

    /// With this much more, `max` at most.
    pub(super) fn plus(self, more: f64, max: f64, now: Millis, half_life_ms: f64) -> Self {
        Self { value: (self.at(now, half_life_ms) + more).min(max), at: now }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_never_grows_by_itself_nor_beyond_its_limit(
            steps in proptest::collection::vec((0u64..10_000, 0.0..1e6), 1..50),
        ) {
            let (mut fading, mut now) = (Fading::default(), Millis(0));
            for (later, more) in steps {
                now = now.plus(later);
                let before = fading.at(now, 1000.0);
                fading = fading.plus(more, 1e6, now, 1000.0);
                prop_assert!(fading.at(now, 1000.0) <= 1e6);
                prop_assert!(fading.at(now, 1000.0) >= before.min(1e6));
                prop_assert!(fading.at(now.plus(1000), 1000.0) <= fading.at(now, 1000.0) / 2.0 + 1e-9);
            }
        }
    }
}
