//! What the index keeps per stream.

use std::num::NonZeroU32;

use hashbrown::HashMap;

use crate::event::EngineHash;
use crate::key::BlockKey;
use crate::stream::Trust;

use super::groups::{Groups, PerGroup};

#[derive(Debug)]
pub(super) struct StreamBlocks {
    pub(super) model: Box<str>,
    pub(super) trust: Trust,
    /// Of the full-attention groups; learnt from the first event.
    pub(super) block_size: Option<NonZeroU32>,
    pub(super) groups: Groups,
    /// The engine's hashes that are held at least once.
    pub(super) hashes: HashMap<EngineHash, HashEntry>,
    /// Distinct blocks held.
    pub(super) blocks: usize,
}

/// What one engine hash stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum HashEntry {
    /// Our key for it, and the copies counted under this hash in all groups.
    Keyed { key: BlockKey, references: u32 },
    /// A sliding-window group named it before the full one did: only the copies per group are known.
    Unkeyed { references: PerGroup },
}

// === impl StreamBlocks ===

impl StreamBlocks {
    pub(super) fn new(model: &str) -> Self {
        Self {
            model: Box::from(model),
            trust: Trust::Recovering,
            block_size: None,
            groups: Groups::default(),
            hashes: HashMap::new(),
            blocks: 0,
        }
    }

    /// Back to knowing nothing, for the engine may come back with another block size.
    pub(super) fn reset(&mut self) {
        self.block_size = None;
        self.groups = Groups::default();
        self.hashes = HashMap::new();
        self.blocks = 0;
    }

    /// The key of a block named by an event before; `None` where it is not known.
    pub(super) fn key_of(&self, hash: EngineHash) -> Option<BlockKey> {
        match self.hashes.get(&hash) {
            Some(HashEntry::Keyed { key, .. }) => Some(*key),
            Some(HashEntry::Unkeyed { .. }) | None => None,
        }
    }
}
