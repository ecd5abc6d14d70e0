//! A model of what can be known of a cache from its events, of which some are not heard: in the plainest form, by the
//! whole prefixes that blocks stand for.

use std::collections::{BTreeMap, BTreeSet};

pub(super) const BLOCK: usize = 2;

/// Blocks are named by the prefix that they end.
#[derive(Default)]
pub(super) struct Known {
    /// Copies heard of and not known to be gone, by group.
    told: BTreeMap<(usize, Vec<u32>), usize>,
    /// Those whose whole prefix is known, in any group.
    placed: BTreeSet<Vec<u32>>,
    /// Those whose prefix is not, and those that others of them are behind.
    linked: BTreeSet<Vec<u32>>,
    /// Those of which the group with full attention removed a copy since something is linked.
    gone: BTreeSet<Vec<u32>>,
    pub(super) unknown_removals: u64,
    /// The group with full attention.
    full: usize,
}

pub(super) fn parent(block: &[u32]) -> &[u32] {
    &block[..block.len() - BLOCK]
}

// === impl Known ===

impl Known {
    /// `full`: the group with full attention.
    pub(super) fn with_full(full: usize) -> Self {
        Self { full, ..Self::default() }
    }

    fn is_told(&self, block: &[u32]) -> bool {
        self.told.iter().any(|((_, told), copies)| told == block && *copies > 0)
    }

    /// The group holds the block, and it is known which one that is.
    pub(super) fn counts(&self, group: usize, block: &[u32]) -> bool {
        let copies = self.told.get(&(group, block.to_vec()));
        self.placed.contains(block) && copies.is_some_and(|copies| *copies > 0)
    }

    /// Blocks with a copy that counts; hashes; blocks aside.
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        let told: BTreeSet<_> =
            self.told.iter().filter(|(_, copies)| **copies > 0).map(|((_, block), _)| block).collect();
        (self.placed.len(), told.len(), self.linked.len())
    }

    /// The group's event told of the prompt's blocks from `from` on, with their tokens.
    pub(super) fn store(&mut self, group: usize, prompt: &[u32], from: usize) {
        let mut is_known = from == 0 || self.placed.contains(&prompt[..from * BLOCK]);
        for end in from + 1..=prompt.len() / BLOCK {
            let block = prompt[..end * BLOCK].to_vec();
            self.store_by_hash(group, block.clone());
            is_known |= self.placed.contains(&block);
            if is_known {
                self.place(block);
            } else {
                self.linked.insert(block);
            }
        }
    }

    /// The group's event told of a block, by its hash alone.
    pub(super) fn store_by_hash(&mut self, group: usize, block: Vec<u32>) {
        *self.told.entry((group, block)).or_default() += 1;
    }

    /// The block's prefix is known, so that of the linked blocks behind it is, too.
    fn place(&mut self, block: Vec<u32>) {
        self.linked.remove(&block);
        let behind = self.linked.iter().filter(|linked| parent(linked) == block).cloned().collect::<Vec<_>>();
        if self.is_told(&block) {
            self.placed.insert(block);
        }
        for linked in behind {
            self.place(linked);
        }
    }

    pub(super) fn remove(&mut self, group: usize, mut block: Vec<u32>) {
        match self.told.get_mut(&(group, block.clone())).filter(|copies| **copies > 0) {
            Some(copies) => *copies -= 1,
            None => self.unknown_removals += 1,
        }
        if group == self.full && !self.linked.is_empty() {
            self.gone.insert(block.clone());
        }
        if self.is_told(&block) {
            return;
        }
        self.placed.remove(&block);
        while self.linked.contains(&block)
            && !self.is_told(&block)
            && !self.linked.iter().any(|linked| parent(linked) == block)
        {
            self.linked.remove(&block);
            block = parent(&block).to_vec();
        }
        self.tidy();
    }

    /// The engine's own hashes of the prompt are computed. Of its blocks, those before one that is linked and was not told
    /// of itself are held, unless they went.
    pub(super) fn recognize(&mut self, prompt: &[u32]) {
        let ends = (1..=prompt.len() / BLOCK).map(|block| block * BLOCK);
        let is_awaited = |end: &usize| {
            let block = &prompt[..*end];
            !self.linked.contains(block) && self.linked.iter().any(|linked| parent(linked) == block)
        };
        let Some(last) = ends.clone().rfind(is_awaited) else { return };
        for block in ends.take_while(|end| *end <= last).map(|end| prompt[..end].to_vec()) {
            if !self.placed.contains(&block) && !self.linked.contains(&block) && !self.gone.contains(&block) {
                self.told.insert((self.full, block.clone()), 1);
            }
            self.place(block);
        }
        self.tidy();
    }

    pub(super) fn clear(&mut self) {
        *self = Self { unknown_removals: self.unknown_removals, ..Self::with_full(self.full) };
    }

    /// What went is of interest only while something is linked.
    pub(super) fn tidy(&mut self) {
        if self.linked.is_empty() {
            self.gone.clear();
        }
    }
}
