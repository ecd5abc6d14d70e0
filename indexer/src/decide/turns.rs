//! Whose turn it is, for policies that go in turn.

use std::collections::HashMap;

use parking_lot::Mutex;
use warmpath_core::rank::Policy;

use crate::fleet::ModelIndex;

/// Rankings made so far, of each model by each policy: were they counted together, two models asked for in turn would
/// each always meet the same endpoint.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<(Option<ModelIndex>, &'static str), u64>>);

impl Turns {
    /// Rankings made before this one.
    pub(super) fn next(&self, model: Option<ModelIndex>, policy: Policy) -> u64 {
        let mut turns = self.0.lock();
        let turn = turns.entry((model, policy.name())).or_default();
        let now = *turn;
        *turn = turn.wrapping_add(1);
        now
    }

    /// The same, without making one.
    pub(super) fn peek(&self, model: Option<ModelIndex>, policy: Policy) -> u64 {
        self.0.lock().get(&(model, policy.name())).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_and_policies_take_turns_of_their_own() {
        let turns = Turns::default();
        let next = |model| turns.next(Some(ModelIndex(model)), Policy::RoundRobin);
        assert_eq!([next(0), next(1), next(0), next(1)], [0, 0, 1, 1]);
        assert_eq!(turns.next(Some(ModelIndex(0)), Policy::LeastLoad), 0);
        assert_eq!(turns.peek(Some(ModelIndex(0)), Policy::RoundRobin), 2);
    }
}
