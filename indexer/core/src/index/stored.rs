//! Applying `BlockStored`.

use std::num::NonZeroU32;

use crate::event::{EngineHash, Medium, Stored};
use crate::key::{BlockKey, Extra, KeyHasher};
use crate::stream::StreamId;

use super::aside::Link;
use super::chains::Chains;
use super::groups::{PerGroup, Role};
use super::place::{Place, Slot};
use super::references::Referred;
use super::stats::{Admissions, Origin, Skipped};
use super::streams::StreamBlocks;
use super::{Index, count, namespace};

/// The blocks of one event on their way in.
struct Entering<'a> {
    hasher: &'a KeyHasher,
    stream: &'a mut StreamBlocks,
    slot: Slot,
    chains: &'a mut Chains,
    /// Blocks kept aside so far, over all streams.
    arrivals: &'a mut u64,
    attached: &'a mut u64,
    admissions: &'a mut Admissions,
    skipped: &'a mut Skipped,
    origin: Origin,
    /// Most engine hashes that the stream may have now.
    references_max: usize,
}

/// Where a block stands in its prompt.
#[derive(Clone, Copy)]
struct Spot {
    /// The block before it; `None`: it is the first.
    after: Option<Place>,
    key: BlockKey,
    /// How many blocks of the same event follow.
    more: usize,
}

/// There is no room for a block, or its hash stands for another one.
struct Refused;

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
        let (before, aside) = (stream.references(), stream.aside.bytes());
        let mut entering = Entering {
            hasher: &self.hasher,
            references_max: (before + room).min(self.limits.stream_references_max),
            stream,
            slot,
            chains: &mut self.chains,
            arrivals: &mut self.arrivals,
            attached: &mut self.stats.aside.attached,
            admissions: &mut self.stats.admissions,
            skipped: &mut self.stats.skipped,
            origin,
        };
        if role == Role::Full {
            entering.enter(stored, size, fills, group);
        } else {
            entering.enter_by_hash(stored, group);
        }
        entering.keep_aside_within(self.limits.stream_aside_bytes_max);
        let stream = entering.stream;
        self.references = self.references + stream.references() - before;
        self.aside_bytes = self.aside_bytes + stream.aside.bytes() - aside;
        self.keep_aside_within_all();
    }

    /// Drops the blocks that have been aside for longest, of all streams, until the others fit the limit.
    fn keep_aside_within_all(&mut self) {
        while self.aside_bytes > self.limits.aside_bytes_max {
            let aside = self.streams.iter_mut().filter(|stream| !stream.aside.is_empty());
            let Some(stream) = aside.min_by_key(|stream| stream.aside.oldest()) else { return };
            let (references, bytes) = (stream.references(), stream.aside.bytes());
            self.stats.skipped.unknown_parent += stream.drop_oldest_aside();
            self.references = self.references + stream.references() - references;
            self.aside_bytes = self.aside_bytes + stream.aside.bytes() - bytes;
        }
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

    /// Counts a copy of a block whose parent is not known. Returns what is known of the block itself, by its hash.
    fn copy_behind_unknown(
        &mut self,
        hash: EngineHash,
        parent: EngineHash,
        tokens: &[u32],
        extras: Vec<Extra>,
        group: usize,
    ) -> Result<Option<(Option<Place>, BlockKey)>, Refused> {
        if let Some(place) = self.stream.pool.place(hash) {
            self.recopy(hash, place, group);
            return Ok(self.chains.key(place).map(|key| (Some(place), key)));
        }
        if let Some(link) = self.stream.aside.get(hash) {
            if link.parent != parent {
                self.skipped.conflicting_hash += 1;
                return Err(Refused);
            }
        } else if self.stream.references() < self.references_max || self.stream.pool.is_unplaced(hash) {
            *self.arrivals += 1;
            let link = Link { parent, tokens: tokens.into(), extras: extras.into(), arrival: *self.arrivals };
            self.stream.aside.keep(hash, link);
        } else {
            self.skipped.capacity += 1;
            return Err(Refused);
        }
        self.stream.pool.note_unplaced(hash, group);
        Ok(None)
    }

    fn keep_aside_within(&mut self, bytes_max: usize) {
        while self.stream.aside.bytes() > bytes_max {
            self.skipped.unknown_parent += self.stream.drop_oldest_aside();
        }
    }

    /// Gives their places to the blocks aside that are behind this one, which has just got its own.
    fn attach(&mut self, hash: EngineHash, after: Option<Place>, key: BlockKey) {
        let mut reached = vec![(hash, after, key)];
        while let Some((parent, after, key)) = reached.pop() {
            while let Some((hash, link)) = self.stream.aside.take_behind(parent) {
                let key = link.key(self.hasher, key);
                reached.push((hash, self.settle(hash, after, key), key));
            }
        }
    }

    /// Counts the copies of a block that has been aside at its place. Returns the place, if the block has one.
    fn settle(&mut self, hash: EngineHash, after: Option<Place>, key: BlockKey) -> Option<Place> {
        let found = self.chains.find(after, key);
        let Some(copies) = self.stream.pool.take_unplaced(hash) else { return found };
        if found.is_none() && !self.chains.has_room() {
            self.skipped.capacity += 1;
            return None;
        }
        let place = found.unwrap_or_else(|| self.chains.place(after, key, 0));
        self.recopy_all(hash, place, copies);
        *self.attached += 1;
        Some(place)
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
    fn copy(&mut self, hash: EngineHash, spot: Spot, group: usize) -> Referred {
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

    fn recopy_all(&mut self, hash: EngineHash, place: Place, copies: PerGroup) {
        for (group, copies) in copies.into_iter().enumerate() {
            for _ in 0..copies {
                self.recopy(hash, place, group);
            }
        }
    }

    /// Counts a copy of a block whose hash is known already.
    fn recopy(&mut self, hash: EngineHash, place: Place, group: usize) {
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
            match self.origin {
                Origin::Published => self.admissions.stored += 1,
                Origin::Replayed => self.admissions.restored += 1,
            }
        }
    }
}
