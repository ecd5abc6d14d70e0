//! Where a prompt is at home: what several that decide agree on without a word between them.
//!
//! In: what nobody holds of a prompt, and what was picked here of late. Out: for each endpoint, how many of the prompt's tokens
//! are away from home there, as [`Candidate::away_tokens`].
//!
//! A pick is known to the others a few milliseconds later. Of requests that come faster than that about one new prefix, each
//! decider would choose another endpoint, and make a copy of its own; and requests with nothing in common would meet at the one
//! endpoint that all of them see idle. So everybody has the same order of endpoints for every block (rendezvous hashing, as that
//! of [`crate::ring`]), whose first is the block's home:
//!
//! - where requests come one at a time, each decider prefers endpoints of its own, a share of all, among those that cost about the
//!   same: what another picks at the same moment is hardly ever the same prompt, and goes elsewhere then;
//! - where they come together, the order decides between endpoints that cost about the same, so that equal prompts meet;
//! - the more picks are unheard, the more costs what nobody holds away from home;
//! - and so does, half as much, a second copy of what we put somewhere a moment ago: as far as the others know, nobody holds that
//!   yet, and they make their copy at its home.
//!
//! These are prices, not rules: a home that is far behind is left.
//!
//! The first block that nobody holds, not the first of the prompt: prompts that begin with one system prompt part there.

use std::collections::VecDeque;

use super::Candidate;
use crate::rendezvous::{hash, mix};

/// A pick is known to the others after so many milliseconds: one until it is told, the rest on the way and for pauses of either.
const HEARD_AFTER_MS: u64 = 5;
/// Unheard picks of others, as estimated, from which on a home has its whole price: requests that come in twos and threes go where
/// they are served first.
const UNHEARD_WHOLE: usize = 32;
/// Who has not picked for so long has no steady load: what comes then may be the first of a burst.
const STEADY_MS: u64 = 1000;
/// Who was not heard to pick for so long picks no more; long, because a share that comes and goes is nobody's.
const PICKS_MS: u64 = 10_000;
/// Own picks remembered: more than an indexer makes in that time.
const KEPT: usize = 256;
/// Tokens that the end of the order is away for a prompt of which nobody holds anything: between endpoints that cost about the same.
const ORDER_TOKENS: f64 = 50.0;
/// Tokens that an endpoint of another's is away for such a prompt, where requests come one at a time.
const OWN_TOKENS: f64 = 25.0;
/// Share of a token that another copy of it counts for.
const COPY_SHARE: f64 = 0.5;

/// A block of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landmark {
    /// Tokens of the prompt before it.
    pub behind: u32,
    /// Its key: of all of the prompt up to its end.
    pub key: u64,
}

/// The last picks made here, as many as can matter.
#[derive(Clone, Debug, Default)]
pub struct Unheard {
    picks: VecDeque<Pick>,
}

#[derive(Clone, Copy, Debug)]
struct Pick {
    at_ms: u64,
    /// The first block that nobody held then.
    unknown: Option<Landmark>,
}

/// Where what is new of a prompt is at home.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Home {
    /// The first block that nobody holds.
    unknown: Landmark,
    /// The first block that nobody holds as far as others know.
    unheard: Option<Landmark>,
    /// How much it counts, 0 to 1.
    weight: f64,
    /// Requests come one at a time: the share of this decider, to keep out of the others' way.
    apart: Option<Share>,
}

/// Another that decides, as far as is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// By which all have the same order of deciders.
    pub id: u32,
    /// Its last pick that was heard of.
    pub picked_at_ms: Option<u64>,
}

/// Those who decide, one of them here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deciders {
    /// Beside this one.
    others: usize,
    /// Those who pick at all. A gateway that asks in turn and makes as many calls for each request as there are deciders asks
    /// one and the same all the time: endpoints that were kept free for the others would do nothing.
    share: Share,
}

/// The share of endpoints that each of those who pick has: which of them this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    /// So many come before it in an order that all have.
    before: usize,
    /// All of them, at least one.
    of: usize,
}

// === impl Unheard ===

impl Unheard {
    /// A pick was made here, of a prompt whose first block that nobody held is `unknown`.
    pub fn note(&mut self, now_ms: u64, unknown: Option<Landmark>) {
        self.picks.push_back(Pick { at_ms: now_ms, unknown });
        while self.picks.len() > KEPT || self.picks.front().is_some_and(|pick| !pick.is_unheard(now_ms)) {
            self.picks.pop_front();
        }
    }

    /// The home of what is new of a prompt, where others decide beside us. `has`: whether a block is one of the prompt's.
    /// None: alone, there is nothing to agree on.
    pub fn home(
        &self,
        deciders: Deciders,
        now_ms: u64,
        unknown: Landmark,
        has: impl Fn(Landmark) -> bool,
    ) -> Option<Home> {
        let Deciders { others, share } = deciders;
        if others == 0 {
            return None;
        }
        let weight = self.weight(others, now_ms);
        let unheard = if weight > 0.0 { self.first_of(now_ms, unknown.behind, has) } else { None };
        let is_single = self.picks.back().is_some_and(|pick| pick.is_single_before(now_ms));
        let apart = (is_single && share.of > 1).then_some(share);
        Some(Home { unknown, unheard, weight, apart })
    }

    /// How much the home of a prompt counts, 0 to 1, where `others` decide beside us: they pick as often as we do, so they
    /// made as many picks each of which nothing is known here.
    fn weight(&self, others: usize, now_ms: u64) -> f64 {
        let unheard = others * self.picks.iter().filter(|pick| pick.is_unheard(now_ms)).count();
        unheard.min(UNHEARD_WHOLE) as f64 / UNHEARD_WHOLE as f64
    }

    /// The first block before `held` tokens of a prompt that was unknown to all when it was picked here.
    fn first_of(&self, now_ms: u64, held: u32, has: impl Fn(Landmark) -> bool) -> Option<Landmark> {
        let unheard = self.picks.iter().filter(|pick| pick.is_unheard(now_ms));
        let blocks = unheard.filter_map(|pick| pick.unknown);
        blocks.filter(|block| block.behind < held && has(*block)).min_by_key(|block| block.behind)
    }
}

// === impl Pick ===

impl Pick {
    fn is_unheard(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.at_ms) < HEARD_AFTER_MS
    }

    /// Requests come one at a time, if this was the last one.
    fn is_single_before(&self, now_ms: u64) -> bool {
        !self.is_unheard(now_ms) && now_ms.saturating_sub(self.at_ms) < STEADY_MS
    }
}

// === impl Home ===

impl Home {
    /// Writes into each candidate how many tokens of a prompt of `prompt_tokens` are away from home there. `places`: their
    /// addresses and ranks, by which everybody knows them, in their order.
    pub fn settle<'a>(
        &self,
        prompt_tokens: u32,
        places: impl Iterator<Item = (&'a str, u32)>,
        candidates: &mut [Candidate],
    ) {
        let places: Vec<u64> = places.map(|(endpoint, rank)| lot(endpoint, rank)).collect();
        let held = candidates.iter().map(|candidate| candidate.cached_tokens).max().unwrap_or(0);
        let unknown = f64::from(prompt_tokens.saturating_sub(held));
        // Where most is held, its holders decide.
        let new_share = unknown / f64::from(prompt_tokens.max(1));
        if let Some(share) = self.apart.filter(|share| share.of <= places.len()) {
            for (candidate, is_ours) in candidates.iter_mut().zip(share.own(&places)) {
                candidate.away_tokens = if is_ours { 0.0 } else { OWN_TOKENS * new_share };
            }
            return;
        }
        for (candidate, behind) in candidates.iter_mut().zip(order(&places, self.unknown.key)) {
            let away = if behind > 0.0 { self.weight * unknown } else { 0.0 };
            candidate.away_tokens = away + behind * ORDER_TOKENS * new_share;
        }
        let Some(unheard) = self.unheard else { return };
        for (candidate, behind) in candidates.iter_mut().zip(order(&places, unheard.key)) {
            if behind > 0.0 {
                let copied = held.saturating_sub(candidate.cached_tokens.max(unheard.behind));
                candidate.away_tokens += self.weight * COPY_SHARE * f64::from(copied);
            }
        }
    }
}

// === impl Deciders ===

impl Deciders {
    /// This one, `own`, and `others`, as it is now.
    pub fn of(own: u32, others: impl Iterator<Item = Other>, now_ms: u64) -> Self {
        let mut deciders = Self { others: 0, share: Share { before: 0, of: 1 } };
        for other in others {
            deciders.others += 1;
            if other.picked_at_ms.is_some_and(|at| now_ms.saturating_sub(at) < PICKS_MS) {
                deciders.share.of += 1;
                deciders.share.before += usize::from(other.id < own);
            }
        }
        deciders
    }
}

// === impl Share ===

impl Share {
    /// Which of these places are this decider's own: every so many-th in an order that all have.
    fn own(self, places: &[u64]) -> Vec<bool> {
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_unstable_by_key(|at| places.get(*at));
        let mut own = vec![false; places.len()];
        for at in order.into_iter().skip(self.before).step_by(self.of.max(1)) {
            if let Some(place) = own.get_mut(at) {
                *place = true;
            }
        }
        own
    }
}

/// How far each place is behind the first in a key's order: 0 for that one, below 1 for the last.
fn order(places: &[u64], key: u64) -> impl Iterator<Item = f64> {
    let lots: Vec<u64> = places.iter().map(|place| mix(place ^ key)).collect();
    let home = lots.iter().copied().max().unwrap_or(0);
    lots.into_iter().map(move |lot| (home - lot) as f64 / u64::MAX as f64)
}

fn lot(endpoint: &str, rank: u32) -> u64 {
    mix(hash(endpoint).wrapping_add(u64::from(rank)))
}

#[cfg(test)]
mod tests;
