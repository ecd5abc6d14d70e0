//! Where a prompt that nobody holds is at home: what several that decide agree on without a word between them.
//!
//! In: the key of the first block that nobody holds, and how many picks are being made that are not known here. Out: how far
//! each endpoint is from the home of that block, as [`super::Candidate::home_distance`].
//!
//! A pick is known to the others a few milliseconds later. Of requests that come faster than that about one new prefix, each
//! decider would choose another endpoint, and make a copy of its own. So each has the same order of endpoints for every key
//! (rendezvous hashing, as that of [`crate::ring`]), and while picks are unheard, what nobody holds costs more away from the first
//! of that order. It is a price, not a rule: a home that is far behind is left.
//!
//! The first block that nobody holds, not the first of the prompt: prompts that begin with one system prompt part there.

use std::collections::VecDeque;

use crate::rendezvous::{hash, mix};

/// A pick is known to the others after so many milliseconds: two until it is told, three on the way.
const HEARD_AFTER_MS: u64 = 5;
/// Unheard picks of others, as estimated, up to which the home counts nothing: requests that come in twos and threes go where
/// they are served first…
const UNHEARD_FEW: usize = 4;
/// …and so many more from which on it counts whole.
const UNHEARD_WHOLE: usize = 4;
/// Own picks beyond these change nothing, however few others there are.
const KEPT: usize = UNHEARD_FEW + UNHEARD_WHOLE;

/// The times of the last picks made here, as many as can matter.
#[derive(Clone, Debug, Default)]
pub struct Unheard {
    picks_ms: VecDeque<u64>,
}

/// The home of what nobody holds of a prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Home {
    key: u64,
    weight: f64,
}

// === impl Unheard ===

impl Unheard {
    /// A pick was made here.
    pub fn note(&mut self, now_ms: u64) {
        self.picks_ms.push_back(now_ms);
        if self.picks_ms.len() > KEPT {
            self.picks_ms.pop_front();
        }
    }

    /// How much the home of a prompt counts, 0 to 1, where `others` decide beside us: they pick as often as we do, so they
    /// made as many picks each of which nothing is known here.
    pub fn weight(&self, others: usize, now_ms: u64) -> f64 {
        let is_unheard = |at: &&u64| now_ms.saturating_sub(**at) < HEARD_AFTER_MS;
        let unheard = others * self.picks_ms.iter().filter(is_unheard).count();
        unheard.saturating_sub(UNHEARD_FEW).min(UNHEARD_WHOLE) as f64 / UNHEARD_WHOLE as f64
    }
}

// === impl Home ===

impl Home {
    /// Of the first block that nobody holds. None: without weight there is nothing to agree on.
    pub fn of(key: u64, weight: f64) -> Option<Self> {
        (weight > 0.0).then_some(Self { key, weight })
    }

    /// How far each of these is from it, in their order: by address and rank, the same for all who decide.
    pub fn distances<'a>(self, endpoints: impl Iterator<Item = (&'a str, u32)>) -> Vec<f64> {
        let lots: Vec<u64> = endpoints
            .map(|(endpoint, rank)| mix(mix(hash(endpoint).wrapping_add(u64::from(rank))) ^ self.key))
            .collect();
        let home = lots.iter().copied().max();
        lots.iter().map(|lot| if Some(*lot) == home { 0.0 } else { self.weight }).collect()
    }
}

#[cfg(test)]
mod tests;
