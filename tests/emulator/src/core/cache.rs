//! The prefix cache as the scheduler sees it: sequences take space in it, and every change is recorded as an event.

use super::events::{KvEvent, Stored};
use super::hash::{Digest, Seed};
use super::pool::{BlockId, CachedBlock, Pool};
use super::sequence::Sequence;

/// Pool, hashing and the events not yet published.
#[derive(Debug)]
pub(super) struct Cache {
    pool: Pool,
    seed: Seed,
    block_size: usize,
    pending: Vec<KvEvent>,
}

impl Cache {
    pub(super) fn new(pool: Pool, seed: Seed, block_size: usize) -> Self {
        Self { pool, seed, block_size, pending: Vec::new() }
    }

    /// The blocks that a sequence without any could start from. At least its last token stays to be computed, so a
    /// hit covers at most `(len - 1) / block_size` blocks.
    pub(super) fn find_hit(&self, sequence: &mut Sequence) -> Vec<BlockId> {
        let most = sequence.len().saturating_sub(1) / self.block_size;
        let chain = sequence.full_blocks(self.block_size, &self.seed);
        self.pool.lookup(chain.get(..most).unwrap_or(chain))
    }

    /// Gives a sequence the space for `new_tokens` more computed tokens, starting from the blocks `hit` if it has none
    /// yet, and caches the blocks that become full. False, and nothing changed, if the pool cannot.
    pub(super) fn extend(&mut self, sequence: &mut Sequence, hit: &[BlockId], new_tokens: usize) -> bool {
        let computed = sequence.computed + hit.len() * self.block_size + new_tokens;
        let missing = computed.div_ceil(self.block_size).saturating_sub(sequence.blocks.len() + hit.len());
        if missing + self.pool.free_among(hit) > self.pool.free() {
            return false;
        }
        self.pool.touch(hit);
        let mut evicted = Vec::new();
        let Some(fresh) = self.pool.allocate(missing, &mut evicted) else { return false };
        self.pending.extend(evicted.into_iter().map(|digest| KvEvent::Removed(vec![digest])));
        sequence.blocks.extend_from_slice(hit);
        sequence.blocks.extend(fresh);
        if sequence.request.reports_hits && !hit.is_empty() {
            self.publish(sequence, 0, hit.len());
        }
        sequence.cached_blocks = sequence.cached_blocks.max(hit.len());
        sequence.computed = computed;
        self.store_full(sequence);
        true
    }

    /// Takes everything a sequence holds.
    pub(super) fn release(&mut self, sequence: &mut Sequence) {
        self.pool.release(&sequence.blocks);
        sequence.blocks.clear();
        sequence.cached_blocks = 0;
        sequence.computed = 0;
    }

    /// Drops the cache if nobody uses it; the event waits for the next batch.
    pub(super) fn reset(&mut self) -> bool {
        let done = self.pool.reset();
        if done {
            self.pending.push(KvEvent::Cleared);
        }
        done
    }

    /// Events that wait for the next batch.
    pub(super) fn unpublished(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn take_events(&mut self) -> Vec<KvEvent> {
        std::mem::take(&mut self.pending)
    }

    /// Share of the usable blocks that sequences hold; free cached ones do not count.
    pub(super) fn usage(&self) -> f64 {
        let usable = self.pool.usable().max(1) as f64;
        (self.pool.usable() - self.pool.free()) as f64 / usable
    }

    pub(super) fn usable_blocks(&self) -> usize {
        self.pool.usable()
    }

    pub(super) fn cached(&self) -> Vec<CachedBlock> {
        self.pool.cached().collect()
    }

    pub(super) fn root(&self) -> Digest {
        self.seed.root()
    }

    /// Enters the blocks that are full and computed into the cache.
    fn store_full(&mut self, sequence: &mut Sequence) {
        let from = sequence.cached_blocks;
        let to = sequence.computed.min(sequence.len()) / self.block_size;
        if to <= from {
            return;
        }
        let root = self.seed.root();
        let ids: Vec<BlockId> = sequence.blocks.iter().copied().take(to).skip(from).collect();
        let chain = sequence.full_blocks(self.block_size, &self.seed);
        let mut parent = from.checked_sub(1).and_then(|before| chain.get(before)).map_or(root, |b| b.digest);
        for (id, content) in ids.into_iter().zip(chain.iter().skip(from)) {
            self.pool.store(id, parent, content);
            parent = content.digest;
        }
        sequence.cached_blocks = to;
        self.publish(sequence, from, to);
    }

    /// Records a `Stored` event for the full blocks `from..to` of a sequence.
    fn publish(&mut self, sequence: &mut Sequence, from: usize, to: usize) {
        let chain = sequence.full_blocks(self.block_size, &self.seed);
        let parent = from.checked_sub(1).and_then(|before| chain.get(before)).map(|block| block.digest);
        let run = chain.get(from..to).unwrap_or_default();
        let hashes = run.iter().map(|block| block.digest).collect();
        let tokens = run.iter().flat_map(|block| block.tokens.iter().copied()).collect();
        let extra_keys = run.iter().map(|block| block.extra.clone()).collect();
        self.pending.push(KvEvent::Stored(Stored {
            hashes,
            parent,
            tokens,
            block_size: self.block_size,
            lora: sequence.request.lora.clone(),
            extra_keys,
            session: sequence.request.session.clone(),
        }));
    }
}
