//! The keys of the blocks that an event tells of.

use std::slice::ChunksExact;

use crate::event::Stored;
use crate::key::{BlockKey, KeyHasher, PlainBlocks};

use super::namespace;

/// The keys of an event's blocks, one after the other.
pub(super) struct EventKeys<'a> {
    hasher: &'a KeyHasher,
    stored: &'a Stored,
    blocks: ChunksExact<'a, u32>,
    /// Where none of them has extras, as in nearly all events.
    plain: Option<PlainBlocks>,
    /// The key before the next one.
    parent: BlockKey,
    position: usize,
}

/// The key before that of an event's first block where that begins a prompt.
pub(super) fn root_of(hasher: &KeyHasher, model: &str, stored: &Stored) -> BlockKey {
    hasher.root(&namespace::of_first_block(model, stored))
}

// === impl EventKeys ===

impl<'a> EventKeys<'a> {
    /// Of blocks of `width` tokens each, which come after the one with the key `root`.
    pub(super) fn new(hasher: &'a KeyHasher, root: BlockKey, stored: &'a Stored, width: usize) -> Self {
        let width = width.max(1);
        Self {
            hasher,
            stored,
            blocks: stored.tokens.chunks_exact(width),
            plain: (!namespace::has_extras(stored)).then(|| hasher.plain(width)),
            parent: root,
            position: 0,
        }
    }
}

impl Iterator for EventKeys<'_> {
    type Item = BlockKey;

    #[inline]
    fn next(&mut self) -> Option<BlockKey> {
        let tokens = self.blocks.next()?;
        self.parent = match self.plain {
            Some(plain) => plain.block(self.parent, tokens),
            None => self.hasher.block(self.parent, tokens, &namespace::extras_of(self.stored, self.position)),
        };
        self.position += 1;
        Some(self.parent)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.blocks.size_hint()
    }
}
