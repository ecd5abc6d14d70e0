//! The block pool of a replica: which blocks are held, which are free and still cached, and in which order free ones
//! are taken. The same rules as the emulated engine's pool (`tests/emulator`), over ids in place of tokens and without
//! anything but constant-time steps, so that a run of a hundred million blocks takes seconds.
//!
//! ```text
//! free ──allocate (evicts)──▶ held ──release──▶ free
//!  └────────touch (a hit)──────▲
//! ```

use hashbrown::HashMap;

/// No block.
const NONE: u32 = u32::MAX;

/// Index of a physical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockId(u32);

#[derive(Clone, Copy, Debug)]
struct Block {
    holders: u32,
    /// Of what it holds.
    id: Option<u64>,
    /// Neighbours in the queue of free blocks.
    before: u32,
    after: u32,
    /// The next block with the same id, in the order in which they were stored.
    twin: u32,
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Pool {
    blocks: Vec<Block>,
    /// The oldest block of each id.
    cached: HashMap<u64, u32, Mixed>,
    front: u32,
    back: u32,
    free: usize,
    /// Physical blocks with something cached in them.
    filled: usize,
    /// Changes with everything that a lookup or an allocation depends on.
    version: u64,
}

/// Ids are mixed already.
#[derive(Clone, Debug, Default)]
struct Mixed;

#[derive(Debug)]
struct AsIs(u64);

// === impl Mixed ===

impl std::hash::BuildHasher for Mixed {
    type Hasher = AsIs;

    fn build_hasher(&self) -> AsIs {
        AsIs(0)
    }
}

impl std::hash::Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id;
    }
}

// === impl Pool ===

impl Pool {
    /// `usable` empty blocks.
    pub(crate) fn new(usable: u32) -> Self {
        let empty = Block { holders: 0, id: None, before: NONE, after: NONE, twin: NONE };
        let mut pool = Self {
            blocks: vec![empty; usable as usize],
            cached: HashMap::with_hasher(Mixed),
            front: NONE,
            back: NONE,
            free: 0,
            filled: 0,
            version: 0,
        };
        (0..usable).for_each(|block| pool.append(block));
        pool
    }

    pub(crate) fn usable(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that an allocation can have.
    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// Physical blocks with something cached in them, held ones included.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Equal as long as nothing has changed.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The physical blocks of the longest cached prefix of `chain`.
    pub(crate) fn lookup(&self, chain: impl Iterator<Item = u64>, out: &mut Vec<BlockId>) {
        out.clear();
        out.extend(chain.map_while(|id| self.cached.get(&id).copied().map(BlockId)));
    }

    /// How many of these blocks a touch would take out of the free queue.
    pub(crate) fn free_among(&self, blocks: &[BlockId]) -> usize {
        blocks.iter().filter(|block| self.block(block.0).holders == 0).count()
    }

    /// Adds a holder to cached blocks.
    pub(crate) fn touch(&mut self, blocks: &[BlockId]) {
        for block in blocks {
            if self.block(block.0).holders == 0 {
                self.unlink(block.0);
            }
            self.block_mut(block.0).holders += 1;
        }
    }

    /// Takes `count` blocks from the front of the free queue, evicting what they held; false, and nothing changed, if
    /// there are fewer.
    pub(crate) fn allocate(
        &mut self,
        count: usize,
        taken: &mut Vec<BlockId>,
        evicted: &mut Vec<u64>,
    ) -> bool {
        if self.free < count {
            return false;
        }
        for _ in 0..count {
            let block = self.front;
            self.unlink(block);
            self.block_mut(block).holders = 1;
            if let Some(id) = self.block_mut(block).id.take() {
                self.forget(block, id);
                evicted.push(id);
            }
            taken.push(BlockId(block));
        }
        true
    }

    /// Enters a held block into the prefix cache.
    pub(crate) fn store(&mut self, block: BlockId, id: u64) {
        self.version += 1;
        self.filled += 1;
        self.block_mut(block.0).id = Some(id);
        self.block_mut(block.0).twin = NONE;
        match self.cached.get(&id).copied() {
            None => {
                self.cached.insert(id, block.0);
            }
            Some(mut last) => {
                while self.block(last).twin != NONE {
                    last = self.block(last).twin;
                }
                self.block_mut(last).twin = block.0;
            }
        }
    }

    /// Gives up one holder of each block, tail first, so that the ends of chains are evicted before their beginnings.
    /// Blocks without content are reused before any cached one.
    pub(crate) fn release(&mut self, blocks: &[BlockId]) {
        for BlockId(block) in blocks.iter().rev().copied() {
            let state = self.block_mut(block);
            state.holders -= 1;
            if state.holders > 0 {
                continue;
            }
            if state.id.is_none() { self.prepend(block) } else { self.append(block) }
        }
    }

    /// Every id in the cache, with its copies.
    pub(crate) fn contents(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.cached.iter().map(|(id, first)| {
            let twins = std::iter::successors(Some(*first), |block| {
                Some(self.block(*block).twin).filter(|twin| *twin != NONE)
            });
            (*id, twins.count())
        })
    }

    /// The invariants: every block is either held or in the free queue, and the cache names exactly the blocks that have
    /// an id.
    pub(crate) fn check(&self) -> bool {
        let queued = std::iter::successors((self.front != NONE).then_some(self.front), |block| {
            Some(self.block(*block).after).filter(|after| *after != NONE)
        });
        let queued: Vec<u32> = queued.take(self.blocks.len() + 1).collect();
        let held = self.blocks.iter().filter(|block| block.holders > 0).count();
        let with_id = self.blocks.iter().filter(|block| block.id.is_some()).count();
        let named: usize = self.contents().map(|(_, copies)| copies).sum();
        queued.len() == self.free
            && queued.iter().all(|block| self.block(*block).holders == 0)
            && held + self.free == self.blocks.len()
            && with_id == named
            && with_id == self.filled
    }

    fn forget(&mut self, block: u32, id: u64) {
        self.filled -= 1;
        let next = self.block(block).twin;
        let Some(first) = self.cached.get(&id).copied() else { return };
        if first == block {
            if next == NONE {
                self.cached.remove(&id);
            } else {
                self.cached.insert(id, next);
            }
            return;
        }
        let mut before = first;
        while self.block(before).twin != block {
            before = self.block(before).twin;
        }
        self.block_mut(before).twin = next;
    }

    fn append(&mut self, block: u32) {
        self.version += 1;
        self.free += 1;
        let back = std::mem::replace(&mut self.back, block);
        let state = self.block_mut(block);
        state.before = back;
        state.after = NONE;
        if back == NONE { self.front = block } else { self.block_mut(back).after = block }
    }

    fn prepend(&mut self, block: u32) {
        self.version += 1;
        self.free += 1;
        let front = std::mem::replace(&mut self.front, block);
        let state = self.block_mut(block);
        state.before = NONE;
        state.after = front;
        if front == NONE { self.back = block } else { self.block_mut(front).before = block }
    }

    fn unlink(&mut self, block: u32) {
        self.version += 1;
        self.free -= 1;
        let Block { before, after, .. } = *self.block(block);
        if before == NONE {
            self.front = after
        } else {
            self.block_mut(before).after = after
        }
        if after == NONE { self.back = before } else { self.block_mut(after).before = before }
    }

    #[expect(clippy::indexing_slicing, reason = "blocks are named by `new` only and never removed")]
    fn block(&self, block: u32) -> &Block {
        &self.blocks[block as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "blocks are named by `new` only and never removed")]
    fn block_mut(&mut self, block: u32) -> &mut Block {
        &mut self.blocks[block as usize]
    }
}
