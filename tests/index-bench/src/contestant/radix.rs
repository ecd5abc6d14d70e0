//! `RadixTree` of the crate dynamo-kv-router, for one thread; and the forms that its events and answers have.
//!
//! Takes the same events as the concurrent tree. A lookup takes the hashes as a vector of its own; that the bench makes
//! a copy for it is not timed.

use std::hint::black_box;
use std::time::Duration;

use dynamo_kv_router::RadixTree;
use dynamo_kv_router::protocols::{
    BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData,
    KvCacheStoreData, KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent,
    compute_block_hash_for_seq,
};

use super::{Contestant, Race, Raced, Setting};
use crate::block::{Block, Change, prompt_tokens, tokens_of};
use crate::measure::{clocked, worked};

pub(super) struct Radix {
    tree: RadixTree,
    block_size: usize,
    pending: Vec<RouterEvent>,
    prompts: Vec<Vec<LocalBlockHash>>,
    found: OverlapScores,
}

// === impl Radix ===

impl Radix {
    pub(super) fn new(setting: Setting) -> Self {
        Self {
            tree: RadixTree::new(),
            block_size: setting.block_size,
            pending: Vec::new(),
            prompts: Vec::new(),
            found: OverlapScores::new(),
        }
    }
}

impl Contestant for Radix {
    fn name(&self) -> &'static str {
        "dynamo radix"
    }

    fn prepare(&mut self, changes: &[Change]) -> Duration {
        let (pending, time) = prepare(changes, self.block_size);
        self.pending = pending;
        time
    }

    fn apply(&mut self) -> Duration {
        let pending = std::mem::take(&mut self.pending);
        let apply = || {
            for event in pending {
                self.tree.apply_event(event).expect("the blocks are known");
            }
        };
        worked(apply).1
    }

    fn set_prompts(&mut self, prompts: &[&[Block]]) {
        self.prompts = prompts.iter().map(|blocks| hashes(blocks, self.block_size)).collect();
    }

    fn lookup(&mut self, prompt: usize) -> u64 {
        let copy = black_box(self.prompts[prompt].clone());
        let (found, nanoseconds) = clocked(|| self.tree.find_matches(copy, false));
        self.found = found;
        nanoseconds
    }

    fn answer(&self) -> Vec<(u32, u32)> {
        scores(&self.found)
    }

    fn race(&mut self, _: &Race<'_>) -> Option<Raced> {
        None
    }
}

/// The crate's events, and how long it took to hash the tokens and to make them.
pub(super) fn prepare(changes: &[Change], block_size: usize) -> (Vec<RouterEvent>, Duration) {
    let tokens = tokens_of(changes, block_size);
    worked(|| changes.iter().zip(&tokens).map(|(change, tokens)| event(change, tokens, block_size)).collect())
}

/// `tokens`: those of the blocks stored.
fn event(change: &Change, tokens: &[u32], block_size: usize) -> RouterEvent {
    let (worker, data) = match change {
        Change::Store { worker, parent, blocks } => {
            let hashes = compute_block_hash_for_seq(tokens, block_size as u32, BlockHashOptions::default());
            let stored = |(block, tokens_hash): (&Block, LocalBlockHash)| KvCacheStoredBlockData {
                block_hash: ExternalSequenceBlockHash(block.hash),
                tokens_hash,
                mm_extra_info: None,
            };
            let data = KvCacheStoreData {
                parent_hash: parent.map(ExternalSequenceBlockHash),
                start_position: None,
                blocks: blocks.iter().zip(hashes).map(stored).collect(),
            };
            (worker, KvCacheEventData::Stored(data))
        }
        Change::Remove { worker, hashes } => {
            let block_hashes = hashes.iter().copied().map(ExternalSequenceBlockHash).collect();
            (worker, KvCacheEventData::Removed(KvCacheRemoveData { block_hashes }))
        }
    };
    RouterEvent::new(u64::from(*worker), KvCacheEvent { event_id: 0, data, dp_rank: 0 })
}

pub(super) fn hashes(blocks: &[Block], block_size: usize) -> Vec<LocalBlockHash> {
    let tokens = prompt_tokens(blocks, block_size);
    compute_block_hash_for_seq(&tokens, block_size as u32, BlockHashOptions::default())
}

/// Sorted by worker.
pub(super) fn scores(found: &OverlapScores) -> Vec<(u32, u32)> {
    let mut scores: Vec<_> =
        found.scores.iter().map(|(worker, blocks)| (worker.worker_id as u32, *blocks)).collect();
    scores.sort_unstable();
    scores
}
