//! The keys of the blocks that an event tells of.

use crate::event::Stored;
use crate::key::{BlockKey, KeyHasher};

use super::namespace;

/// The key before that of an event's first block where that begins a prompt.
pub(super) fn root_of(hasher: &KeyHasher, model: &str, stored: &Stored) -> BlockKey {
    hasher.root(&namespace::of_first_block(model, stored))
}

/// The keys of an event's blocks, which come after the one with the key `root`, in the place of what is in `keys`.
pub(super) fn keys_of(
    hasher: &KeyHasher,
    root: BlockKey,
    stored: &Stored,
    width: usize,
    keys: &mut Vec<BlockKey>,
) {
    keys.clear();
    let blocks = stored.tokens.chunks_exact(width.max(1));
    keys.reserve(blocks.len());
    let mut parent = root;
    keys.extend(blocks.enumerate().map(|(position, tokens)| {
        parent = hasher.block(parent, tokens, &namespace::extras_of(stored, position));
        parent
    }));
}
