//! `ChainIndex` of the crate kv-index: the index of the SGLang model gateway.
//!
//! Takes hashes of each block's contents and the engine's hashes, in the crate's own types. Readers take no lock; one
//! map per worker belongs to whoever writes for it. Lookups use the entry point that allocates nothing.

use std::hint::black_box;
use std::time::Duration;

use kv_index::{ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock, compute_content_hash};

use super::race::{Paced, race};
use super::{Contestant, Race, Raced, Setting};
use crate::block::{Block, Change, prompt_tokens, tokens_of};
use crate::measure::{clocked, worked};

pub(super) struct Chain {
    index: ChainIndex,
    /// By worker.
    maps: Vec<ChainBlockMap>,
    block_size: usize,
    pending: Vec<Pending>,
    prompts: Vec<Vec<ContentHash>>,
    found: Vec<(u32, u32)>,
}

enum Pending {
    Store { worker: u32, parent: Option<SequenceHash>, blocks: Vec<StoredBlock> },
    Remove { worker: u32, hashes: Vec<SequenceHash> },
}

// === impl Chain ===

impl Chain {
    pub(super) fn new(setting: Setting) -> Self {
        // No more than there are: coverage costs bits per possible worker.
        let index = ChainIndex::with_max_workers(setting.workers);
        for worker in 0..setting.workers as u32 {
            let number =
                index.intern_worker(&format!("worker-{worker}")).expect("there is room for the workers");
            assert_eq!(number, worker, "numbers are given in order");
        }
        let maps = (0..setting.workers).map(|_| ChainBlockMap::new()).collect();
        let block_size = setting.block_size;
        Self { index, maps, block_size, pending: Vec::new(), prompts: Vec::new(), found: Vec::new() }
    }

    /// `tokens`: those of the blocks stored.
    fn event(&self, change: &Change, tokens: &[u32]) -> Pending {
        match change {
            Change::Store { worker, parent, blocks } => {
                let chunks = tokens.chunks_exact(self.block_size);
                let stored = |(block, tokens): (&Block, &[u32])| StoredBlock {
                    seq_hash: SequenceHash(block.hash),
                    content_hash: compute_content_hash(tokens),
                };
                let blocks = blocks.iter().zip(chunks).map(stored).collect();
                Pending::Store { worker: *worker, parent: parent.map(SequenceHash), blocks }
            }
            Change::Remove { worker, hashes } => {
                let hashes = hashes.iter().copied().map(SequenceHash).collect();
                Pending::Remove { worker: *worker, hashes }
            }
        }
    }
}

impl Contestant for Chain {
    fn name(&self) -> &'static str {
        "kv-index chain"
    }

    fn prepare(&mut self, changes: &[Change]) -> Duration {
        let tokens = tokens_of(changes, self.block_size);
        let make =
            || changes.iter().zip(&tokens).map(|(change, tokens)| self.event(change, tokens)).collect();
        let (pending, time) = worked(make);
        self.pending = pending;
        time
    }

    fn apply(&mut self) -> Duration {
        let pending = std::mem::take(&mut self.pending);
        let apply = || pending.iter().for_each(|event| apply_one(&self.index, &mut self.maps, event));
        worked(apply).1
    }

    fn set_prompts(&mut self, prompts: &[&[Block]]) {
        let hashes = |blocks: &&[Block]| {
            let tokens = prompt_tokens(blocks, self.block_size);
            tokens.chunks_exact(self.block_size).map(compute_content_hash).collect()
        };
        self.prompts = prompts.iter().map(hashes).collect();
    }

    fn lookup(&mut self, prompt: usize) -> u64 {
        look(&self.index, &self.prompts[prompt], &mut self.found)
    }

    fn answer(&self) -> Vec<(u32, u32)> {
        let mut found = self.found.clone();
        found.sort_unstable();
        found
    }

    fn race(&mut self, setting: &Race<'_>) -> Option<Raced> {
        let pending = std::mem::take(&mut self.pending);
        let Self { index, maps, prompts, found, .. } = self;
        let index = &*index;
        let apply = |event: Pending| apply_one(index, maps, &event);
        let look = |prompt: usize| {
            let nanoseconds = look(index, &prompts[prompt], found);
            let blocks: u64 = found.iter().map(|(_, blocks)| u64::from(*blocks)).sum();
            (nanoseconds, (found.len(), blocks))
        };
        Some(race(setting, Paced::Beside { events: pending, apply }, look))
    }
}

fn apply_one(index: &ChainIndex, maps: &mut [ChainBlockMap], event: &Pending) {
    match event {
        Pending::Store { worker, parent, blocks } => {
            let map = &mut maps[*worker as usize];
            index.apply_stored(*worker, blocks, *parent, map).expect("the parent is held");
        }
        Pending::Remove { worker, hashes } => {
            index.apply_removed(*worker, hashes, &mut maps[*worker as usize])
        }
    }
}

fn look(index: &ChainIndex, hashes: &[ContentHash], found: &mut Vec<(u32, u32)>) -> u64 {
    black_box(hashes.iter().fold(0, |sum: u64, hash| sum.wrapping_add(hash.0)));
    let look = || {
        found.clear();
        let report = |worker, blocks| found.push((worker, blocks));
        index.score_into(black_box(hashes), |hash| hash.0, false, report)
    };
    clocked(look).1
}
