//! The prefix cache as a replica's scheduler sees it: sequences take space in it, and every change becomes an event.

use warmpath_kv::event::{EngineHash, Event, Removed, Stored};

use crate::pool::{BlockId, Pool};
use crate::sequence::Sequence;

/// Ids that stand for the tokens of a block in events: a block's own id, in two halves. So the index hashes two numbers
/// in place of as many tokens as the block has.
pub(crate) const WORDS_PER_BLOCK: u32 = 2;

/// A pool, and what the next batch of events will tell of it.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) pool: Pool,
    block_tokens: u32,
    pending: Vec<Event>,
    /// Blocks that left the cache for others, ever.
    pub(crate) evictions: u64,
    /// The hit of the sequence that is looked at.
    hit: Vec<BlockId>,
    evicted: Vec<u64>,
}

// === impl Cache ===

impl Cache {
    pub(crate) fn new(blocks: u32, block_tokens: u32) -> Self {
        Self {
            pool: Pool::new(blocks),
            block_tokens,
            pending: Vec::new(),
            evictions: 0,
            hit: Vec::new(),
            evicted: Vec::new(),
        }
    }

    /// Tokens that a sequence without any blocks could start from; its next [`extend`](Self::extend) does. At least its
    /// last token stays to be computed.
    pub(crate) fn find_hit(&mut self, sequence: &Sequence) -> u32 {
        let usable = (sequence.len().saturating_sub(1) / self.block_tokens) as usize;
        self.pool.lookup((0..usable).map(|index| sequence.block_id(index)), &mut self.hit);
        self.hit.len() as u32 * self.block_tokens
    }

    pub(crate) fn no_hit(&mut self) {
        self.hit.clear();
    }

    /// Gives a sequence the space for `new_tokens` more computed tokens, starting from the hit that was found, and caches the blocks that become full. False, and nothing changed, if the pool cannot.
    pub(crate) fn extend(&mut self, sequence: &mut Sequence, new_tokens: u32) -> bool {
        let computed = sequence.computed + self.hit.len() as u32 * self.block_tokens + new_tokens;
        let wanted = computed.div_ceil(self.block_tokens) as usize;
        let missing = wanted.saturating_sub(sequence.blocks.len() + self.hit.len());
        if missing > 0 || !self.hit.is_empty() {
            if missing + self.pool.free_among(&self.hit) > self.pool.free() {
                return false;
            }
            self.pool.touch(&self.hit);
            sequence.blocks.reserve(self.hit.len() + missing);
            sequence.blocks.extend_from_slice(&self.hit);
            if !self.pool.allocate(missing, &mut sequence.blocks, &mut self.evicted) {
                return false;
            }
            self.publish_evicted();
        }
        sequence.cached_blocks = sequence.cached_blocks.max(self.hit.len());
        sequence.computed = computed;
        self.store_full(sequence);
        true
    }

    /// Enters the blocks that are full and computed into the cache.
    fn store_full(&mut self, sequence: &mut Sequence) {
        let from = sequence.cached_blocks;
        let to = (sequence.computed.min(sequence.len()) / self.block_tokens) as usize;
        if to <= from {
            return;
        }
        let ids: Vec<u64> = (from..to).map(|index| sequence.block_id(index)).collect();
        for (block, id) in sequence.blocks.iter().skip(from).zip(&ids) {
            self.pool.store(*block, *id);
        }
        self.pending.push(Event::Stored(Box::new(Stored {
            hashes: ids.iter().map(|id| EngineHash(*id)).collect(),
            parent: from.checked_sub(1).map(|before| EngineHash(sequence.block_id(before))),
            tokens: ids.iter().flat_map(|id| words(*id)).collect(),
            block_size: WORDS_PER_BLOCK,
            ..Stored::default()
        })));
        sequence.cached_blocks = to;
    }

    fn publish_evicted(&mut self) {
        if self.evicted.is_empty() {
            return;
        }
        self.evictions += self.evicted.len() as u64;
        let hashes = self.evicted.drain(..).map(EngineHash);
        self.pending.push(Event::Removed(Removed { hashes: hashes.collect(), ..Removed::default() }));
    }

    /// Takes everything that a sequence holds.
    pub(crate) fn release(&mut self, sequence: &mut Sequence) {
        self.pool.release(&sequence.blocks);
        sequence.blocks.clear();
        sequence.cached_blocks = 0;
        sequence.computed = 0;
    }

    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.pending)
    }
}

/// What stands for the tokens of a block.
pub(crate) fn words(id: u64) -> [u32; WORDS_PER_BLOCK as usize] {
    [id as u32, (id >> 32) as u32]
}
