//! The physical blocks of a rank, the prefix cache over them and the queue of free ones.
//!
//! A block is *held* (by one sequence or more) or *free*. A free block keeps its content and its entry in the prefix
//! cache until somebody needs the space: eviction happens on allocation, never by itself. Equal blocks are not merged:
//! each keeps its own entry under the same digest.
//!
//! ```text
//! free ──allocate (evicts)──▶ held ──release──▶ free
//!  └────────touch (a hit)──────▲
//! ```

use std::collections::{BTreeMap, HashMap};

use super::hash::{Digest, ExtraKey};
use super::sequence::FullBlock;

/// Index of a physical block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockId(usize);

/// A block of the prefix cache, for audits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedBlock {
    /// Its digest.
    pub digest: Digest,
    /// The digest before it; the seed's root for the first block of a prompt.
    pub parent: Digest,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Its extra keys.
    pub extra: Vec<ExtraKey>,
    /// How many physical blocks hold it.
    pub copies: usize,
}

#[derive(Debug, Default)]
struct Block {
    holders: usize,
    digest: Option<Digest>,
    /// Position in the free queue; `None` while held.
    queued_at: Option<i64>,
}

#[derive(Debug)]
struct Entry {
    parent: Digest,
    tokens: Vec<u32>,
    extra: Vec<ExtraKey>,
    /// Oldest first; a hit takes the first.
    blocks: Vec<BlockId>,
}

/// The pool of one rank.
#[derive(Debug)]
pub(super) struct Pool {
    blocks: Vec<Block>,
    cache: HashMap<Digest, Entry>,
    /// Free blocks by their position; the smallest is allocated next.
    free: BTreeMap<i64, BlockId>,
    front: i64,
    back: i64,
    reuses_empty_first: bool,
}

impl Pool {
    /// `total` counts the one block that engines keep back as the null block. With `reuses_empty_first` a released
    /// block without content goes to the front of the free queue (vLLM 0.23 and newer), otherwise to its end.
    pub(super) fn new(total: usize, reuses_empty_first: bool) -> Self {
        let usable = total.saturating_sub(1);
        let mut pool = Self {
            blocks: Vec::new(),
            cache: HashMap::new(),
            free: BTreeMap::new(),
            front: 0,
            back: 0,
            reuses_empty_first,
        };
        for index in 0..usable {
            pool.blocks.push(Block::default());
            pool.append(BlockId(index));
        }
        pool
    }

    /// Blocks that can be used at all.
    pub(super) fn usable(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that an allocation can have.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// The physical blocks of the longest cached prefix of `chain`, which may be cut by the caller.
    pub(super) fn lookup(&self, chain: &[FullBlock]) -> Vec<BlockId> {
        chain.iter().map_while(|block| self.cache.get(&block.digest)?.blocks.first().copied()).collect()
    }

    /// How many of these blocks a touch would take out of the free queue.
    pub(super) fn free_among(&self, blocks: &[BlockId]) -> usize {
        blocks.iter().filter(|&&id| self.block(id).holders == 0).count()
    }

    /// Adds a holder to cached blocks.
    pub(super) fn touch(&mut self, blocks: &[BlockId]) {
        for &id in blocks {
            let block = self.block_mut(id);
            block.holders += 1;
            if let Some(position) = block.queued_at.take() {
                self.free.remove(&position);
            }
        }
    }

    /// Takes `count` blocks from the front of the free queue, evicting what they held; `None`, and nothing changed, if
    /// there are fewer. The digests evicted are appended to `evicted` in order.
    pub(super) fn allocate(&mut self, count: usize, evicted: &mut Vec<Digest>) -> Option<Vec<BlockId>> {
        if self.free.len() < count {
            return None;
        }
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let (_, id) = self.free.pop_first()?;
            let block = self.block_mut(id);
            block.queued_at = None;
            block.holders = 1;
            if let Some(digest) = block.digest.take() {
                self.forget(id, &digest);
                evicted.push(digest);
            }
            taken.push(id);
        }
        Some(taken)
    }

    /// Enters a held block into the prefix cache.
    pub(super) fn store(&mut self, id: BlockId, parent: Digest, content: &FullBlock) {
        self.block_mut(id).digest = Some(content.digest);
        let entry = self.cache.entry(content.digest).or_insert_with(|| Entry {
            parent,
            tokens: content.tokens.clone(),
            extra: content.extra.clone(),
            blocks: Vec::new(),
        });
        entry.blocks.push(id);
    }

    /// Gives up one holder of each block. `blocks` are in the order of the prompt; they are freed tail first, so that
    /// the ends of chains are evicted before their beginnings.
    pub(super) fn release(&mut self, blocks: &[BlockId]) {
        for &id in blocks.iter().rev() {
            let block = self.block_mut(id);
            block.holders = block.holders.saturating_sub(1);
            if block.holders > 0 {
                continue;
            }
            let empty = block.digest.is_none();
            if self.reuses_empty_first && empty {
                self.prepend(id);
            } else {
                self.append(id);
            }
        }
    }

    /// Drops the whole cache; false, and nothing changed, while any block is held.
    pub(super) fn reset(&mut self) -> bool {
        if self.free.len() < self.blocks.len() {
            return false;
        }
        self.cache.clear();
        for block in &mut self.blocks {
            block.digest = None;
        }
        true
    }

    /// Everything cached, in no particular order.
    pub(super) fn cached(&self) -> impl Iterator<Item = CachedBlock> + '_ {
        self.cache.iter().map(|(digest, entry)| CachedBlock {
            digest: *digest,
            parent: entry.parent,
            tokens: entry.tokens.clone(),
            extra: entry.extra.clone(),
            copies: entry.blocks.len(),
        })
    }

    fn forget(&mut self, id: BlockId, digest: &Digest) {
        let Some(entry) = self.cache.get_mut(digest) else { return };
        entry.blocks.retain(|&block| block != id);
        if entry.blocks.is_empty() {
            self.cache.remove(digest);
        }
    }

    fn append(&mut self, id: BlockId) {
        self.back += 1;
        let position = self.back;
        self.enqueue(id, position);
    }

    fn prepend(&mut self, id: BlockId) {
        self.front -= 1;
        let position = self.front;
        self.enqueue(id, position);
    }

    fn enqueue(&mut self, id: BlockId, position: i64) {
        self.block_mut(id).queued_at = Some(position);
        self.free.insert(position, id);
    }

    #[expect(clippy::indexing_slicing, reason = "ids are made by `new` only and blocks are never removed")]
    fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0]
    }

    #[expect(clippy::indexing_slicing, reason = "ids are made by `new` only and blocks are never removed")]
    fn block_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.0]
    }
}
