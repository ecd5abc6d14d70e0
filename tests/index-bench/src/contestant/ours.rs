//! The index of this repository; who writes holds the lock that the program keeps it behind.
//!
//! Takes decoded batches with tokens, and hashes them itself. A lookup takes keys made beforehand, and goes by the reader,
//! as in the program.

use std::hint::black_box;
use std::time::Duration;

use parking_lot::RwLock;
use warmpath_kv::event::{Batch, EngineHash, Event, Removed, Stored};
use warmpath_kv::index::{Origin, Reader};
use warmpath_kv::{Hits, Index, IndexLimits, KeyHasher, Namespace, PromptKeys, StreamId, Trust};

use super::race::{Paced, race};
use super::{Contestant, Race, Raced, Setting};
use crate::block::{Block, Change, prompt_tokens, tokens_of};
use crate::measure::{clocked, worked};

pub(super) struct Ours {
    index: RwLock<Index>,
    reader: Reader,
    block_size: usize,
    pending: Vec<(StreamId, Batch)>,
    prompts: Vec<PromptKeys>,
    hits: Hits,
}

const NAMESPACE: Namespace<'static> = Namespace { model: "m", lora: None, salt: None };

// === impl Ours ===

impl Ours {
    pub(super) fn new(setting: Setting) -> Self {
        let limits = IndexLimits {
            references_max: usize::MAX,
            stream_references_max: usize::MAX,
            ..IndexLimits::default()
        };
        let mut index = Index::new(KeyHasher::new([7; 16]), limits);
        for worker in 0..setting.workers as u32 {
            index.add_stream(StreamId(worker), NAMESPACE.model);
            index.set_trust(StreamId(worker), Trust::Live);
        }
        Self {
            reader: index.reader(),
            index: RwLock::new(index),
            block_size: setting.block_size,
            pending: Vec::new(),
            prompts: Vec::new(),
            hits: Hits::default(),
        }
    }

    fn batch(&self, change: &Change, tokens: Vec<u32>) -> (StreamId, Batch) {
        let (worker, event) = match change {
            Change::Store { worker, parent, blocks } => {
                let hashes = blocks.iter().map(|block| EngineHash(block.hash)).collect();
                let block_size = self.block_size as u32;
                let parent = parent.map(EngineHash);
                let stored = Stored { hashes, parent, tokens, block_size, ..Stored::default() };
                (*worker, Event::Stored(Box::new(stored)))
            }
            Change::Remove { worker, hashes } => {
                let hashes = hashes.iter().copied().map(EngineHash).collect();
                (*worker, Event::Removed(Removed { hashes, ..Removed::default() }))
            }
        };
        (StreamId(worker), Batch { events: vec![event], ..Batch::default() })
    }
}

impl Contestant for Ours {
    fn name(&self) -> &'static str {
        "warmpath"
    }

    fn prepare(&mut self, changes: &[Change]) -> Duration {
        let tokens = tokens_of(changes, self.block_size);
        self.pending =
            changes.iter().zip(tokens).map(|(change, tokens)| self.batch(change, tokens)).collect();
        Duration::ZERO
    }

    fn apply(&mut self) -> Duration {
        let pending = std::mem::take(&mut self.pending);
        let apply = || {
            for (stream, batch) in &pending {
                self.index.write().apply(*stream, batch, Origin::Published);
            }
        };
        worked(apply).1
    }

    fn set_prompts(&mut self, prompts: &[&[Block]]) {
        let plan = self.reader.key_plan();
        let keys = |blocks: &&[Block]| plan.keys(&NAMESPACE, &prompt_tokens(blocks, self.block_size));
        self.prompts = prompts.iter().map(keys).collect();
    }

    fn lookup(&mut self, prompt: usize) -> u64 {
        let keys = &self.prompts[prompt];
        black_box(black_box(keys) == black_box(keys));
        let look = || self.reader.hits(black_box(keys), &mut self.hits);
        clocked(look).1
    }

    fn answer(&self) -> Vec<(u32, u32)> {
        let blocks = |tokens: u32| tokens / self.block_size as u32;
        self.hits.as_slice().iter().map(|hit| (hit.stream.0, blocks(hit.tokens))).collect()
    }

    fn race(&mut self, setting: &Race<'_>) -> Option<Raced> {
        let pending = std::mem::take(&mut self.pending);
        let Self { index, reader, prompts, hits, block_size, .. } = self;
        let apply = |(stream, batch): (StreamId, Batch)| {
            index.write().apply(stream, &batch, Origin::Published);
        };
        let look = |prompt: usize| {
            let keys = &prompts[prompt];
            black_box(black_box(keys) == black_box(keys));
            let nanoseconds = clocked(|| reader.hits(black_box(keys), hits)).1;
            let tokens: u64 = hits.as_slice().iter().map(|hit| u64::from(hit.tokens)).sum();
            (nanoseconds, (hits.as_slice().len(), tokens / *block_size as u64))
        };
        Some(race(setting, Paced::Beside { events: pending, apply }, look))
    }
}
