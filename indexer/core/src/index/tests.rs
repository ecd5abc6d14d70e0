use crate::event::{EngineHash, Group, GroupKind, Medium, RawExtra, Removed, Stored};

use crate::key::Namespace;

use super::*;

mod aside;
mod cases;
mod guessed;
mod hybrid;
mod image;
mod known;
mod late;
mod lookahead;
mod model;
mod slices;
mod slower;
mod tiers;

pub(super) const A: StreamId = StreamId(1);
pub(super) const B: StreamId = StreamId(2);

pub(super) const BASE: Namespace<'_> = Namespace { model: "m", lora: None, salt: None };

/// An index with the streams [`A`] and [`B`], both live and serving the model `m`.
pub(super) fn index() -> Index {
    limited(IndexLimits::default())
}

pub(super) fn limited(limits: IndexLimits) -> Index {
    let mut index = Index::new(KeyHasher::new([9; 16]), limits);
    for stream in [A, B] {
        index.add_stream(stream, "m");
        index.set_trust(stream, Trust::Live);
    }
    index
}

/// Blocks of two tokens after `parent`: the hashes, and the tokens, two a hash.
pub(super) fn stored(parent: Option<u64>, hashes: &[u64], tokens: &[u32]) -> Stored {
    Stored {
        hashes: hashes.iter().copied().map(EngineHash).collect(),
        parent: parent.map(EngineHash),
        tokens: tokens.to_vec(),
        block_size: 2,
        ..Stored::default()
    }
}

pub(super) fn removed(hashes: &[u64]) -> Removed {
    Removed { hashes: hashes.iter().copied().map(EngineHash).collect(), ..Removed::default() }
}

pub(super) fn apply(index: &mut Index, stream: StreamId, events: Vec<Event>) {
    let batch = Batch { events, ..Batch::default() };
    index.apply(stream, &batch, Origin::Published);
}

pub(super) fn store(index: &mut Index, stream: StreamId, stored: Stored) {
    apply(index, stream, vec![Event::Stored(Box::new(stored))]);
}

pub(super) fn remove(index: &mut Index, stream: StreamId, hashes: &[u64]) {
    apply(index, stream, vec![Event::Removed(removed(hashes))]);
}

/// Tokens that the stream holds of the prompt, in the namespace.
pub(super) fn hit_in(index: &Index, namespace: &Namespace<'_>, stream: StreamId, prompt: &[u32]) -> u32 {
    let mut hits = Hits::default();
    index.hits(&index.key_plan().keys(namespace, prompt), &mut hits);
    hits.tokens(stream)
}

pub(super) fn hit(index: &Index, stream: StreamId, prompt: &[u32]) -> u32 {
    hit_in(index, &BASE, stream, prompt)
}

/// The same if slower media count as well.
pub(super) fn hit_with_slower(index: &Index, stream: StreamId, prompt: &[u32]) -> u32 {
    let mut hits = Hits::default();
    index.hits(&index.key_plan().keys(&BASE, prompt), &mut hits);
    hits.with_slower(stream)
}
