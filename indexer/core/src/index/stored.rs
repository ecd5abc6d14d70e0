//! Applying `BlockStored`.

use std::num::NonZeroU32;

use crate::event::{EngineHash, Medium, Stored};
use crate::key::{BlockKey, KeyHasher};
use crate::stream::StreamId;

use super::attach::Refused;
use super::chains::Chains;
use super::groups::{PerGroup, Role};
use super::place::{Place, Slot};
use super::references::Referred;
use super::stats::{Admissions, Origin, Skipped};
use super::streams::StreamBlocks;
use super::{Index, count, namespace};

/// The blocks of one event on their way in.
pub(super) struct Entering<'a> {
    pub(super) hasher: &'a KeyHasher,
    pub(super) stream: &'a mut StreamBlocks,
    pub(super) slot: Slot,
    pub(super) chains: &'a mut Chains,
    /// Blocks kept aside so far, over all streams.
    pub(super) arrivals: &'a mut u64,
    pub(super) attached: &'a mut u64,
    pub(super) admissions: &'a mut Admissions,
    pub(super) skipped: &'a mut Skipped,
    pub(super) entry: Entry,
    /// Most engine hashes that the stream may have now.
    pub(super) references_max: usize,
}

/// How blocks come to be known.
#[derive(Clone, Copy)]
pub(super) enum Entry {
    Told(Origin),
    /// Not told at all, but shown by what was told later.
    Recognized,
}

/// Where a block stands in its prompt.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    /// The block before it; `None`: it is the first.
    pub(super) after: Option<Place>,
    pub(super) key: BlockKey,
    /// How many blocks of the same event follow.
    pub(super) more: usize,
}

impl Index {
    pub(super) fn store(&mut self, id: StreamId, stored: &Stored, origin: Origin) {
        let blocks = count(stored.hashes.len());
        let Some(slot) = self.streams.slot(id) else { return };
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
        self.change(slot, Entry::Told(origin), |entering| {
            if role == Role::Full {
                entering.enter(stored, size, fills, group);
            } else {
                entering.enter_by_hash(stored, group);
            }
        });
    }

    /// Lets blocks enter a stream, and keeps sums and limits.
    pub(super) fn change(&mut self, slot: Slot, entry: Entry, enter: impl FnOnce(&mut Entering<'_>)) {
        let room = self.limits.references_max.saturating_sub(self.references);
        let Some(stream) = self.streams.get_mut(slot) else { return };
        let (references, aside_bytes) = (stream.references(), stream.aside.bytes());
        let mut entering = Entering {
            hasher: &self.hasher,
            references_max: (references + room).min(self.limits.stream_references_max),
            stream,
            slot,
            chains: &mut self.chains,
            arrivals: &mut self.arrivals,
            attached: &mut self.stats.aside.attached,
            admissions: &mut self.stats.admissions,
            skipped: &mut self.stats.skipped,
            entry,
        };
        enter(&mut entering);
        entering.keep_aside_within(self.limits.stream_aside_bytes_max);
        let stream = entering.stream;
        self.references = self.references + stream.references() - references;
        self.aside_bytes = self.aside_bytes + stream.aside.bytes() - aside_bytes;
        self.keep_aside_within_all();
    }
}

// === impl Entering ===

impl Entering<'_> {
    /// Blocks of a full-attention group: their tokens tell which they are.
    fn enter(&mut self, stored: &Stored, size: NonZeroU32, fills: bool, group: usize) {
        let blocks = count(stored.hashes.len());
        if !fills {
            self.skipped.token_mismatch += blocks;
            return;
        }
        if *self.stream.block_size.get_or_insert(size) != size {
            self.skipped.block_size += blocks;
            return;
        }
        let mut parent = stored.parent;
        let mut known = self.parent(stored);
        let width = usize::try_from(size.get()).unwrap_or(usize::MAX);
        let chunks = stored.tokens.chunks_exact(width);
        for (position, (hash, tokens)) in stored.hashes.iter().zip(chunks).enumerate() {
            let extras = namespace::extras_of(stored, position);
            let more = stored.hashes.len() - position - 1;
            known = match (known, parent) {
                (Some((after, parent)), _) => {
                    let key = self.hasher.block(parent, tokens, &extras);
                    match self.copy(*hash, Spot { after, key, more }, group) {
                        Referred::Counted(place) | Referred::TooMany(place) => Some((Some(place), key)),
                        Referred::Conflict => {
                            self.skipped.unknown_parent += count(more);
                            return;
                        }
                        Referred::Full => return,
                    }
                }
                (None, Some(parent)) => {
                    match self.copy_behind_unknown(*hash, parent, tokens, extras, group) {
                        Ok(known) => known,
                        Err(Refused) => return,
                    }
                }
                (None, None) => return,
            };
            parent = Some(*hash);
        }
    }

    /// Place and key of what comes before the event's first block; `None` where it is not known.
    fn parent(&self, stored: &Stored) -> Option<(Option<Place>, BlockKey)> {
        let Some(parent) = stored.parent else {
            return Some((None, self.hasher.root(&namespace::of_first_block(&self.stream.model, stored))));
        };
        let place = self.stream.pool.place(parent)?;
        Some((Some(place), self.chains.key(place)?))
    }

    /// Blocks of a group whose tokens do not tell which they are: by hash alone. Groups share the hashes, so the
    /// full-attention group's event tells the place, sooner or later in the same batch.
    fn enter_by_hash(&mut self, stored: &Stored, group: usize) {
        for hash in &stored.hashes {
            if let Some(place) = self.stream.pool.place(*hash) {
                self.recopy(*hash, place, group);
            } else if self.stream.references() < self.references_max || self.stream.pool.is_unplaced(*hash) {
                self.stream.pool.note_unplaced(*hash, group);
            } else {
                self.skipped.capacity += 1;
                return;
            }
        }
    }

    /// Counts a copy of a block under its hash, and those counted while its place was not known.
    pub(super) fn copy(&mut self, hash: EngineHash, spot: Spot, group: usize) -> Referred {
        let known = self.chains.find(spot.after, spot.key);
        let has_place = known.is_some() || self.chains.has_room();
        let has_room = self.stream.references() < self.references_max || self.stream.pool.is_unplaced(hash);
        let chains = &mut *self.chains;
        let make = || chains.place(spot.after, spot.key, spot.more);
        let referred = self.stream.pool.refer(hash, known, has_place && has_room, make);
        match referred {
            Referred::Counted(place) => {
                self.hold(place, group);
                if let Some(earlier) = self.stream.pool.take_unplaced(hash) {
                    self.recopy_all(hash, place, earlier);
                }
                if !self.stream.aside.is_empty() {
                    self.stream.aside.take(hash);
                    self.attach(hash, Some(place), spot.key);
                }
            }
            Referred::TooMany(_) => self.skipped.copies += 1,
            Referred::Conflict => self.skipped.conflicting_hash += 1,
            Referred::Full => self.skipped.capacity += 1,
        }
        referred
    }

    pub(super) fn recopy_all(&mut self, hash: EngineHash, place: Place, copies: PerGroup) {
        for (group, copies) in copies.into_iter().enumerate() {
            for _ in 0..copies {
                self.recopy(hash, place, group);
            }
        }
    }

    /// Counts a copy of a block whose hash is known already.
    pub(super) fn recopy(&mut self, hash: EngineHash, place: Place, group: usize) {
        match self.stream.pool.refer(hash, Some(place), true, || place) {
            Referred::Counted(place) => self.hold(place, group),
            Referred::TooMany(_) | Referred::Conflict | Referred::Full => self.skipped.copies += 1,
        }
    }

    fn hold(&mut self, place: Place, group: usize) {
        let had = self.chains.store(place, self.slot, group);
        if had.has(group) {
            self.stream.pool.add_spare(place, group);
        }
        if had.is_empty() {
            self.stream.pool.blocks += 1;
            match self.entry {
                Entry::Told(Origin::Published) => self.admissions.stored += 1,
                Entry::Told(Origin::Replayed) => self.admissions.restored += 1,
                Entry::Recognized => self.admissions.recognized += 1,
            }
        }
    }
}
