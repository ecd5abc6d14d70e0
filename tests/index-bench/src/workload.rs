//! What is held, by whom: made up, in the four shapes that tell the structures apart.

use std::fmt;

use crate::block::{Block, Change, EVENT_BLOCKS_MAX, Random, chain, stores};

/// Blocks of a shared beginning of prompts.
pub(crate) const SHARED_BLOCKS: usize = 64;

/// Shared beginnings of [`Shape::Mixed`].
const BEGINNINGS: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shape {
    /// Each prompt at one worker; nothing is shared.
    Unique,
    /// The same, and all prompts begin with the same 64 blocks.
    Shared,
    /// 200 such beginnings; 80 % of the prompts at one worker, 15 % at two, 5 % at six.
    Mixed,
    /// Every worker holds every prompt.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) shape: Shape,
    pub(crate) workers: usize,
    /// Blocks of a prompt.
    pub(crate) length: usize,
    /// (Worker, block) pairs, about.
    pub(crate) memberships: usize,
}

#[derive(Debug)]
pub(crate) struct Prompt {
    pub(crate) blocks: Vec<Block>,
    holders: Vec<u32>,
    /// Which beginning it shares with others, if it does.
    beginning: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) prompts: Vec<Prompt>,
    /// Exactly.
    pub(crate) memberships: usize,
    workers: usize,
}

/// Gives numbers to contents.
#[derive(Debug, Default)]
pub(crate) struct Contents(u64);

/// Who holds which beginning.
struct Beginnings {
    blocks: Vec<Vec<Block>>,
    is_held: Vec<bool>,
    workers: usize,
}

// === impl Shape ===

impl Shape {
    pub(crate) const ALL: [Self; 4] = [Self::Unique, Self::Shared, Self::Mixed, Self::Full];
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unique => "unique",
            Self::Shared => "shared",
            Self::Mixed => "mixed",
            Self::Full => "full",
        })
    }
}

// === impl Contents ===

impl Contents {
    /// So many that were never there before.
    pub(crate) fn fresh(&mut self, count: usize) -> std::ops::Range<u64> {
        let begin = self.0;
        self.0 += count as u64;
        begin..self.0
    }
}

// === impl Workload ===

impl Workload {
    pub(crate) fn new(size: Size, contents: &mut Contents) -> Self {
        let Size { shape, workers, length, memberships: wanted } = size;
        let mut random = Random::new(length as u64);
        let shared = if length > SHARED_BLOCKS { SHARED_BLOCKS } else { 0 };
        let count = match shape {
            Shape::Unique | Shape::Full => 0,
            Shape::Shared => 1,
            Shape::Mixed => BEGINNINGS,
        };
        let mut beginnings = Beginnings::new(count, shared, workers, contents);
        let mut workload = Self { prompts: Vec::new(), memberships: 0, workers };
        while workload.memberships < wanted {
            let number = workload.prompts.len();
            let holders = match shape {
                Shape::Unique | Shape::Shared => vec![(number % workers) as u32],
                Shape::Mixed => some_workers(&mut random, workers),
                Shape::Full => (0..workers as u32).collect(),
            };
            let beginning = (count > 0).then(|| random.below(count.max(1)));
            let begun = beginning.map_or(&[][..], |which| &beginnings.blocks[which]);
            let own = contents.fresh(length - begun.len());
            let mut blocks = begun.to_vec();
            blocks.extend(chain(begun.last().copied(), own));
            let all_own = holders.len() * (length - begun.len());
            let more =
                all_own + holders.iter().map(|holder| beginnings.take(beginning, *holder)).sum::<usize>();
            workload.memberships += more;
            workload.prompts.push(Prompt { blocks, holders, beginning });
        }
        workload
    }

    /// The changes that make it so, prompt by prompt.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> {
        let mut beginnings = Beginnings::new(BEGINNINGS, 0, self.workers, &mut Contents::default());
        self.prompts.iter().flat_map(move |prompt| {
            let mut changes = Vec::new();
            for holder in &prompt.holders {
                let known = prompt.beginning.is_some_and(|which| beginnings.has(which, *holder));
                beginnings.take(prompt.beginning, *holder);
                let from = if known { SHARED_BLOCKS } else { 0 };
                let (held, new) = prompt.blocks.split_at(from);
                let parent = held.last().map(|block| block.hash);
                changes.extend(stores(*holder, parent, new, EVENT_BLOCKS_MAX));
            }
            changes
        })
    }

    /// What a lookup of the whole prompt must find: each holder with all of its blocks, and who holds a prompt with the
    /// same beginning with that. Sorted by worker.
    pub(crate) fn expected(&self, prompt: &Prompt) -> Vec<(u32, u32)> {
        let mut found: Vec<(u32, u32)> =
            prompt.holders.iter().map(|holder| (*holder, prompt.blocks.len() as u32)).collect();
        if prompt.beginning.is_some() {
            let alike = self.prompts.iter().filter(|other| other.beginning == prompt.beginning);
            let mut others: Vec<u32> = alike.flat_map(|other| other.holders.iter().copied()).collect();
            others.sort_unstable();
            others.dedup();
            others.retain(|other| !prompt.holders.contains(other));
            found.extend(others.into_iter().map(|other| (other, SHARED_BLOCKS as u32)));
        }
        found.sort_unstable();
        found
    }

    /// So many prompts that begin like one of these and go on otherwise.
    pub(crate) fn partly_known(&self, count: usize, contents: &mut Contents) -> Vec<Vec<Block>> {
        let prompts = self.prompts.iter().cycle().take(count);
        let part = |prompt: &Prompt| {
            let mut blocks = prompt.blocks[..SHARED_BLOCKS.min(prompt.blocks.len())].to_vec();
            let rest = contents.fresh(prompt.blocks.len() - blocks.len());
            blocks.extend(chain(blocks.last().copied(), rest));
            blocks
        };
        prompts.map(part).collect()
    }

    /// So many prompts of which nothing is held.
    pub(crate) fn unknown(&self, count: usize, contents: &mut Contents) -> Vec<Vec<Block>> {
        let length = self.prompts.first().map_or(0, |prompt| prompt.blocks.len());
        (0..count).map(|_| chain(None, contents.fresh(length))).collect()
    }
}

// === impl Beginnings ===

impl Beginnings {
    fn new(count: usize, length: usize, workers: usize, contents: &mut Contents) -> Self {
        let blocks = (0..count).map(|_| chain(None, contents.fresh(length))).collect();
        Self { blocks, is_held: vec![false; count * workers], workers }
    }

    fn has(&self, which: usize, worker: u32) -> bool {
        self.is_held[which * self.workers + worker as usize]
    }

    /// The worker has it from now on. Returns how many blocks that are more.
    fn take(&mut self, which: Option<usize>, worker: u32) -> usize {
        let Some(which) = which else { return 0 };
        let held = &mut self.is_held[which * self.workers + worker as usize];
        if std::mem::replace(held, true) { 0 } else { self.blocks[which].len() }
    }
}

/// One worker, two or six.
fn some_workers(random: &mut Random, workers: usize) -> Vec<u32> {
    let count = match random.below(100) {
        0..80 => 1,
        80..95 => 2,
        _ => 6,
    };
    let mut chosen = Vec::new();
    while chosen.len() < count.min(workers) {
        let worker = random.below(workers) as u32;
        if !chosen.contains(&worker) {
            chosen.push(worker);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn sizes() -> impl Iterator<Item = Size> {
        Shape::ALL.into_iter().flat_map(|shape| {
            [8, 64].map(|workers| Size { shape, workers, length: 192, memberships: 100_000 })
        })
    }

    /// All (worker, hash) pairs that the changes store; each must be new, and its parent held.
    fn held(workload: &Workload) -> HashSet<(u32, u64)> {
        let mut held = HashSet::new();
        for change in workload.changes() {
            let Change::Store { worker, parent, blocks } = change else { panic!("nothing is removed") };
            assert!(blocks.len() <= EVENT_BLOCKS_MAX);
            assert!(parent.is_none_or(|parent| held.contains(&(worker, parent))), "the parent is held");
            for block in blocks {
                assert!(held.insert((worker, block.hash)), "stored once");
            }
        }
        held
    }

    #[test]
    fn changes_store_each_membership_once_and_as_many_as_are_said() {
        for size in sizes() {
            let workload = Workload::new(size, &mut Contents::default());
            assert_eq!(held(&workload).len(), workload.memberships, "{size:?}");
            let most = size.memberships + size.workers * size.length;
            assert!((size.memberships..=most).contains(&workload.memberships), "{size:?}");
        }
    }

    #[test]
    fn expected_answers_are_the_leading_blocks_held() {
        for size in sizes() {
            let workload = Workload::new(size, &mut Contents::default());
            let held = held(&workload);
            for prompt in workload.prompts.iter().step_by(37) {
                let depth = |worker: u32| {
                    prompt.blocks.iter().take_while(|block| held.contains(&(worker, block.hash))).count()
                        as u32
                };
                let all = (0..size.workers as u32).map(|worker| (worker, depth(worker)));
                let expected: Vec<_> = all.filter(|(_, depth)| *depth > 0).collect();
                assert_eq!(workload.expected(prompt), expected, "{size:?}");
            }
        }
    }

    #[test]
    fn partly_known_prompts_part_after_the_shared_beginning() {
        let mut contents = Contents::default();
        let size = Size { shape: Shape::Shared, workers: 8, length: 192, memberships: 10_000 };
        let workload = Workload::new(size, &mut contents);
        let held = held(&workload);
        for blocks in workload.partly_known(10, &mut contents) {
            let known = blocks.iter().take_while(|block| held.contains(&(0, block.hash))).count();
            assert_eq!((known, blocks.len()), (SHARED_BLOCKS, 192));
        }
        for blocks in workload.unknown(10, &mut contents) {
            assert!(blocks.iter().all(|block| (0..8).all(|worker| !held.contains(&(worker, block.hash)))));
        }
    }

    #[test]
    fn a_mixture_has_one_two_or_six_holders() {
        let mut random = Random::new(1);
        let mut counts = [0; 7];
        for _ in 0..10_000 {
            let workers = some_workers(&mut random, 64);
            assert_eq!(workers.iter().collect::<HashSet<_>>().len(), workers.len());
            counts[workers.len()] += 1;
        }
        assert_eq!(counts.iter().sum::<usize>(), counts[1] + counts[2] + counts[6]);
        assert!((7_800..8_200).contains(&counts[1]) && (400..600).contains(&counts[6]), "{counts:?}");
    }
}
