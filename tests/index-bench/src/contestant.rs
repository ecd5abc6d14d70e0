//! What is compared: structures that are told of changes and asked who holds how much of a prompt.
//!
//! All of them take the same changes and the same prompts. What a contestant wants computed beforehand (hashes of the
//! tokens, its own shape of an event) is computed by [`Contestant::prepare`] and [`Contestant::set_prompts`].

use std::time::Duration;

use crate::block::{Block, Change};
use crate::measure::Samples;

#[cfg(feature = "peers")]
mod chain;
#[cfg(feature = "peers")]
mod concurrent_radix;
mod ours;
mod race;
#[cfg(feature = "peers")]
mod radix;

/// What a contestant is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) workers: usize,
    /// Tokens of a block.
    pub(crate) block_size: usize,
}

pub(crate) trait Contestant {
    fn name(&self) -> &'static str;

    /// Makes its own events of the changes, to be applied next. Returns how long it takes to hash the tokens and to
    /// make the events, given the tokens; zero for one that takes tokens.
    fn prepare(&mut self, changes: &[Change]) -> Duration;

    /// Applies what was prepared, and returns how long that kept its writing thread on a CPU.
    fn apply(&mut self) -> Duration;

    /// Makes its own form of the prompts to be asked for, with whatever can be computed before the lookup.
    fn set_prompts(&mut self, prompts: &[&[Block]]);

    /// Looks up a prompt whose prepared form is in the cache, as that of a prompt that has just been prepared. Returns
    /// the time from the call to the answer in nanoseconds; what frees the answer is not in it.
    fn lookup(&mut self, prompt: usize) -> u64;

    /// The last lookup's answer: workers that hold something, each with its leading blocks; sorted by worker.
    fn answer(&self) -> Vec<(u32, u32)>;

    /// Puts its house in order where that is done from time to time only.
    fn sweep(&mut self) {}

    /// Applies what was prepared at a steady pace and looks up prompts meanwhile; `None`: it cannot do both at once.
    fn race(&mut self, race: &Race<'_>) -> Option<Raced>;
}

/// Lookups while changes are applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Race<'a> {
    /// Events a second.
    pub(crate) rate: u32,
    /// Prompts to look up, again and again; nothing of them is changed.
    pub(crate) prompts: &'a [usize],
    /// For each of them, how many workers hold something, and how many blocks that is in all.
    pub(crate) expected: &'a [(usize, u64)],
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Raced {
    pub(crate) lookups: Samples,
    /// Events a second that were in fact applied.
    pub(crate) rate: f64,
    /// Lookups with another answer than expected.
    pub(crate) wrong: usize,
}

/// How many there are.
pub(crate) const COUNT: usize = if cfg!(feature = "peers") { 4 } else { 1 };

/// The `which`th contestant; the first is ours.
pub(crate) fn one(which: usize, setting: Setting) -> Box<dyn Contestant> {
    match which {
        #[cfg(feature = "peers")]
        1 => Box::new(chain::Chain::new(setting)),
        #[cfg(feature = "peers")]
        2 => Box::new(concurrent_radix::ConcurrentRadix::new(setting)),
        #[cfg(feature = "peers")]
        3 => Box::new(radix::Radix::new(setting)),
        _ => Box::new(ours::Ours::new(setting)),
    }
}

/// Applies changes, a few at a time: prepared events of all of them would take more memory than what they are about.
pub(crate) fn apply_all(contestant: &mut dyn Contestant, changes: impl Iterator<Item = Change>) {
    let mut some = Vec::with_capacity(CHANGES_AT_ONCE);
    for change in changes {
        some.push(change);
        if some.len() == CHANGES_AT_ONCE {
            contestant.prepare(&some);
            contestant.apply();
            some.clear();
        }
    }
    contestant.prepare(&some);
    contestant.apply();
}

const CHANGES_AT_ONCE: usize = 64;

/// In which order so many contestants take their turns in a round: each is first as often as the others.
pub(crate) fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| (round + turn) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contestant_has_one_turn_a_round_and_another_one_is_first_each_time() {
        let rounds: Vec<Vec<usize>> = (0..4).map(|round| turns(round, 3).collect()).collect();
        assert_eq!(rounds, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
    }
}
