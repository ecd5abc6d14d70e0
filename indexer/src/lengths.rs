//! How many tokens answers have, by model: what a request will probably take of an engine's memory beside its prompt.
//!
//! In: completion tokens as answers tell them. Out: what to expect of the next request, never more than it allows.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::fleet::ModelIndex;

/// What one answer weighs in the mean: some hundred of them are remembered.
const WEIGHT: f64 = 1.0 / 64.0;

/// The mean of each model's answers, the newest counting most.
#[derive(Debug, Default)]
pub struct OutputLengths(Mutex<HashMap<ModelIndex, f64>>);

impl OutputLengths {
    /// An answer had so many tokens, all of its sequences together.
    pub fn note(&self, model: ModelIndex, tokens: u32, sequences: u32) {
        let of_one = f64::from(tokens) / f64::from(sequences.max(1));
        let mut means = self.0.lock();
        let mean = means.entry(model).or_insert(of_one);
        *mean += WEIGHT * (of_one - *mean);
    }

    /// What to expect of a request, all of its sequences together. `limit`: of each of them; 0: none.
    pub fn expected(&self, model: ModelIndex, sequences: u32, limit: u32) -> u64 {
        let Some(mean) = self.0.lock().get(&model).copied() else { return 0 };
        let of_one = if limit == 0 { mean } else { mean.min(limit.into()) };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of u32 values")]
        let of_one = of_one.round() as u64;
        of_one * u64::from(sequences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_learnt_and_bounded_by_what_a_request_allows() {
        let (lengths, model) = (OutputLengths::default(), ModelIndex(0));
        assert_eq!(lengths.expected(model, 1, 0), 0, "nothing is known");
        for _ in 0..1000 {
            lengths.note(model, 400, 2);
        }
        assert_eq!([lengths.expected(model, 1, 0), lengths.expected(model, 3, 0)], [200, 600]);
        assert_eq!([lengths.expected(model, 1, 50), lengths.expected(model, 1, 5000)], [50, 200]);
        assert_eq!(lengths.expected(ModelIndex(1), 1, 0), 0, "another model");
        for _ in 0..1000 {
            lengths.note(model, 20, 1);
        }
        assert_eq!(lengths.expected(model, 1, 0), 20);
    }
}
