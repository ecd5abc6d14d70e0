//! The cache of one process of an engine, in the plainest form: every physical block as the whole prefix it stands for.

use std::collections::BTreeMap;

use crate::rng::Rng;

/// Tokens of a block.
const BLOCK: usize = 2;

/// What the process tells of one change.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Stored { hashes: Vec<u64>, parent: Option<u64>, tokens: Vec<u32> },
    Removed { hash: u64 },
    Cleared,
}

/// Hashes with their copies.
pub(crate) type Copies = BTreeMap<u64, u32>;

pub(crate) struct Cache {
    /// Each process has its own.
    seed: u64,
    /// Physical blocks.
    held: Vec<Vec<u32>>,
}

// === impl Cache ===

impl Cache {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, held: Vec::new() }
    }

    /// Some changes of one engine step.
    pub(crate) fn work(&mut self, rng: &mut Rng) -> Vec<Change> {
        (0..1 + rng.below(3)).filter_map(|_| self.change(rng)).collect()
    }

    fn change(&mut self, rng: &mut Rng) -> Option<Change> {
        match rng.below(20) {
            0 => Some(self.empty()),
            1..8 if !self.held.is_empty() => {
                let block = self.held.swap_remove(rng.below(self.held.len()));
                Some(Change::Removed { hash: self.hash(&block) })
            }
            _ => self.store(rng),
        }
    }

    pub(crate) fn empty(&mut self) -> Change {
        self.held.clear();
        Change::Cleared
    }

    /// Computes a prompt from where the cache ends, or from a block earlier: that makes a second copy.
    fn store(&mut self, rng: &mut Rng) -> Option<Change> {
        let prompt: Vec<u32> = (0..BLOCK * (1 + rng.below(4))).map(|_| u32::from(rng.one_in(3))).collect();
        let blocks = prompt.len() / BLOCK;
        let found = (1..=blocks)
            .take_while(|end| self.held.iter().any(|held| *held == prompt[..end * BLOCK]))
            .count();
        let from = if found == blocks || found > 0 && rng.one_in(6) { found - 1 } else { found };
        let ends = || (from + 1..=blocks).map(|end| &prompt[..end * BLOCK]);
        let hashes: Vec<u64> = ends().map(|block| self.hash(block)).collect();
        self.held.extend(ends().map(<[u32]>::to_vec));
        let parent = (from > 0).then(|| self.hash(&prompt[..from * BLOCK]));
        (!hashes.is_empty()).then(|| Change::Stored {
            hashes,
            parent,
            tokens: prompt[from * BLOCK..].to_vec(),
        })
    }

    pub(crate) fn copies(&self) -> Copies {
        let mut copies = Copies::new();
        for block in &self.held {
            *copies.entry(self.hash(block)).or_default() += 1;
        }
        copies
    }

    /// The engine's own hash of the prefix that a block ends.
    fn hash(&self, prefix: &[u32]) -> u64 {
        hash(self.seed, prefix)
    }
}

pub(crate) fn hash(seed: u64, prefix: &[u32]) -> u64 {
    prefix.iter().fold(seed, |hash, token| {
        (hash ^ u64::from(*token + 1))
            .wrapping_add(0x51ed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(31)
    })
}

/// Leading tokens of the prompt that a cache with these blocks saves: whole blocks, and never the last token.
pub(crate) fn hit(copies: &Copies, seed: u64, prompt: &[u32]) -> u32 {
    let usable = prompt.len().saturating_sub(1) / BLOCK;
    let blocks =
        (1..=usable).take_while(|end| copies.contains_key(&hash(seed, &prompt[..end * BLOCK]))).count();
    u32::try_from(blocks * BLOCK).expect("short")
}
