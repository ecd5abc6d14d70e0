//! Applying `BlockStored`.

use std::num::NonZeroU32;

use crate::event::{EngineHash, Medium, Stored};
use crate::key::{BlockKey, KeyHasher};
use crate::stream::StreamId;

use super::chains::Chains;
use super::groups::Role;
use super::place::{Place, Slot};
use super::stats::{Admissions, Origin, Skipped};
use super::streams::{Referred, StreamBlocks};
use super::{Index, count, namespace};

/// The blocks of one event on their way in.
struct Entering<'a> {
    stream: &'a mut StreamBlocks,
    slot: Slot,
    chains: &'a mut Chains,
    admissions: &'a mut Admissions,
    skipped: &'a mut Skipped,
    origin: Origin,
    /// Most engine hashes that the stream may have now.
    references_max: usize,
}

/// Where a block stands in its prompt.
#[derive(Clone, Copy)]
struct Link {
    /// The block before it; `None`: it is the first.
    after: Option<Place>,
    key: BlockKey,
    /// How many blocks of the same event follow.
    more: usize,
}

impl Index {
    pub(super) fn store(&mut self, id: StreamId, stored: &Stored, origin: Origin) {
        let blocks = count(stored.hashes.len());
        let Some(slot) = self.streams.slot(id) else { return };
        let room = self.limits.references_max.saturating_sub(self.references);
        let Some(stream) = self.streams.get_mut(slot) else { return };
        if stored.medium != Medium::Gpu {
            stream.has_other_media = true;
            self.stats.skipped.other_medium += blocks;
            return;
        }
        let Some(size) = NonZeroU32::new(stored.block_size) else {
            self.stats.skipped.placeholder += blocks;
            return;
        };
        if stored.has_lora_id && stored.lora_name.is_none() {
            self.stats.skipped.unnamed_lora += blocks;
            return;
        }
        let width = usize::try_from(size.get()).unwrap_or(usize::MAX);
        let fills = stored.hashes.len().checked_mul(width) == Some(stored.tokens.len());
        let Some((group, role)) = stream.groups.note(stored.group, size, fills) else {
            self.stats.skipped.groups += blocks;
            return;
        };
        let before = stream.references();
        stream.fetch(&stored.hashes);
        let mut entering = Entering {
            references_max: (before + room).min(self.limits.stream_references_max),
            stream,
            slot,
            chains: &mut self.chains,
            admissions: &mut self.stats.admissions,
            skipped: &mut self.stats.skipped,
            origin,
        };
        if role == Role::Full {
            entering.enter(&self.hasher, stored, size, fills, group);
        } else {
            entering.enter_by_hash(stored, group);
        }
        self.references = self.references + entering.stream.references() - before;
    }
}

// === impl Entering ===

impl Entering<'_> {
    /// Blocks of a full-attention group: their tokens tell which they are.
    fn enter(&mut self, hasher: &KeyHasher, stored: &Stored, size: NonZeroU32, fills: bool, group: usize) {
        let blocks = count(stored.hashes.len());
        if !fills {
            self.skipped.token_mismatch += blocks;
            return;
        }
        if *self.stream.block_size.get_or_insert(size) != size {
            self.skipped.block_size += blocks;
            return;
        }
        let Some((mut after, root)) = self.parent(hasher, stored) else {
            self.skipped.unknown_parent += blocks;
            return;
        };
        // All keys first: where nothing is hashed between them, the next blocks' entries are on their way from memory
        // while one is made.
        let keys = keys_of(hasher, root, stored, size);
        for (position, (hash, key)) in stored.hashes.iter().zip(keys).enumerate() {
            let more = stored.hashes.len() - position - 1;
            let known = self.chains.find(after, key);
            match self.copy(*hash, known, Link { after, key, more }, group) {
                Referred::Counted(place) | Referred::TooMany(place) => after = Some(place),
                Referred::Conflict => {
                    self.skipped.unknown_parent += count(more);
                    return;
                }
                Referred::Full => return,
            }
        }
    }

    /// Place and key of what comes before the event's first block; `None` where it is not known.
    fn parent(&self, hasher: &KeyHasher, stored: &Stored) -> Option<(Option<Place>, BlockKey)> {
        let Some(parent) = stored.parent else {
            return Some((None, hasher.root(&namespace::of_first_block(&self.stream.model, stored))));
        };
        let place = self.stream.place(parent)?;
        Some((Some(place), self.chains.key(place)?))
    }

    /// Blocks of a group whose tokens do not tell which they are: by hash alone. Groups share the hashes, so the
    /// full-attention group's event tells the place, sooner or later in the same batch.
    fn enter_by_hash(&mut self, stored: &Stored, group: usize) {
        for hash in &stored.hashes {
            if let Some(place) = self.stream.place(*hash) {
                self.recopy(*hash, place, group);
            } else if self.stream.references() < self.references_max || self.stream.is_unplaced(*hash) {
                self.stream.note_unplaced(*hash, group);
            } else {
                self.skipped.capacity += 1;
                return;
            }
        }
    }

    /// Counts a copy of a block under its hash, and those counted while its place was not known.
    #[inline(always)]
    fn copy(&mut self, hash: EngineHash, known: Option<Place>, link: Link, group: usize) -> Referred {
        let has_place = known.is_some() || self.chains.has_room();
        let has_room = has_place && self.stream.references() < self.references_max;
        let chains = &mut *self.chains;
        let make = || chains.place(link.after, link.key, link.more);
        let referred = self.stream.refer(hash, known, has_room, make);
        match referred {
            Referred::Counted(place) => {
                self.hold(place, group);
                if let Some(earlier) = self.stream.take_unplaced(hash) {
                    for (group, copies) in earlier.into_iter().enumerate() {
                        for _ in 0..copies {
                            self.recopy(hash, place, group);
                        }
                    }
                }
            }
            Referred::TooMany(_) => self.skipped.copies += 1,
            Referred::Conflict => self.skipped.conflicting_hash += 1,
            Referred::Full => self.skipped.capacity += 1,
        }
        referred
    }

    /// Counts a copy of a block whose hash is known already.
    fn recopy(&mut self, hash: EngineHash, place: Place, group: usize) {
        match self.stream.refer(hash, Some(place), true, || place) {
            Referred::Counted(place) => self.hold(place, group),
            Referred::TooMany(_) | Referred::Conflict | Referred::Full => self.skipped.copies += 1,
        }
    }

    fn hold(&mut self, place: Place, group: usize) {
        let had = self.chains.store(place, self.slot, group);
        if had.has(group) {
            self.stream.add_spare(place, group);
        }
        if had.is_empty() {
            self.stream.blocks += 1;
            match self.origin {
                Origin::Published => self.admissions.stored += 1,
                Origin::Replayed => self.admissions.restored += 1,
            }
        }
    }
}

/// The keys of an event's blocks, which come after the one with the key `root`.
fn keys_of(hasher: &KeyHasher, root: BlockKey, stored: &Stored, size: NonZeroU32) -> Vec<BlockKey> {
    let width = usize::try_from(size.get()).unwrap_or(usize::MAX);
    let key = |parent: &mut BlockKey, (position, tokens): (usize, &[u32])| {
        *parent = hasher.block(*parent, tokens, &namespace::extras_of(stored, position));
        Some(*parent)
    };
    stored.tokens.chunks_exact(width).enumerate().scan(root, key).collect()
}
