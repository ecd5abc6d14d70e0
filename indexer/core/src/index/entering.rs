//! Blocks on their way in, one by one.

use crate::event::{EngineHash, Stored};
use crate::key::{BlockKey, KeyHasher};
use crate::stream::Millis;

use super::chains::Chains;
use super::keys::{EventKeys, root_of};
use super::place::{PerGroup, Place, Slot};
use super::references::{References, Referred, Refused};
use super::slower::Ageing;
use super::stats::{Admissions, Origin, Skipped};
use super::streams::StreamBlocks;
use super::{count, namespace};

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
    pub(super) now: Millis,
    /// How many blocks aside may still get their place.
    pub(super) attach_left: usize,
    /// Most engine hashes that the stream may have now.
    pub(super) references_max: usize,
}

/// What a copy lies in.
#[derive(Clone, Copy)]
pub(super) enum Layer {
    Main {
        group: usize,
    },
    /// By its place in [`Medium::SLOWER`](crate::event::Medium::SLOWER).
    Slower {
        medium: usize,
    },
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

// === impl Entering ===

impl Entering<'_> {
    /// Blocks whose tokens tell which they are, `width` of them each, in the order of `hashes`.
    pub(super) fn enter(
        &mut self,
        stored: &Stored,
        hashes: impl Iterator<Item = EngineHash>,
        width: usize,
        layer: Layer,
    ) {
        let Some((mut after, root)) = self.parent(stored) else {
            self.enter_behind_unknown(stored, hashes, width, layer);
            return;
        };
        // All keys first: where nothing is hashed between them, the next blocks' entries are on their way from memory
        // while one is made.
        let keys: Vec<_> = EventKeys::new(self.hasher, root, stored, width).collect();
        let blocks = keys.len();
        for (position, (hash, key)) in hashes.zip(keys).enumerate() {
            let spot = Spot { after, key, more: blocks - position - 1 };
            let Some(place) = self.enter_one(hash, spot, layer) else { return };
            after = Some(place);
        }
    }

    /// Returns the block's place; `None`: it has none, so those behind it cannot enter.
    #[inline(always)]
    fn enter_one(&mut self, hash: EngineHash, spot: Spot, layer: Layer) -> Option<Place> {
        match self.copy(hash, spot, layer) {
            Referred::Counted(place) => {
                self.age(hash, layer);
                Some(place)
            }
            Referred::TooMany(place) => Some(place),
            Referred::Conflict => {
                self.skipped.unknown_parent += count(spot.more);
                None
            }
            Referred::Full => None,
        }
    }

    /// The same where the block before the first is not known: until one is known by its hash, they are kept aside.
    #[cold]
    fn enter_behind_unknown(
        &mut self,
        stored: &Stored,
        hashes: impl Iterator<Item = EngineHash>,
        width: usize,
        layer: Layer,
    ) {
        let Some(mut before) = stored.parent else { return };
        let mut known: Option<(Option<Place>, BlockKey)> = None;
        let blocks = stored.tokens.len() / width.max(1);
        for (position, (hash, tokens)) in hashes.zip(stored.tokens.chunks_exact(width.max(1))).enumerate() {
            let extras = namespace::extras_of(stored, position);
            known = match known {
                Some((after, parent)) => {
                    let key = self.hasher.block(parent, tokens, &extras);
                    let spot = Spot { after, key, more: blocks - position - 1 };
                    let Some(place) = self.enter_one(hash, spot, layer) else { return };
                    Some((Some(place), key))
                }
                None => match self.copy_behind_unknown(hash, before, tokens, extras, layer) {
                    Ok(known) => known,
                    Err(Refused) => return,
                },
            };
            before = hash;
        }
    }

    /// Place and key of what comes before the event's first block; `None` where it is not known.
    fn parent(&self, stored: &Stored) -> Option<(Option<Place>, BlockKey)> {
        let Some(parent) = stored.parent else {
            return Some((None, root_of(self.hasher, &self.stream.model, stored)));
        };
        let place = self.stream.place(parent)?;
        Some((Some(place), self.chains.key(place)?))
    }

    /// Blocks whose tokens do not tell which they are: by hash alone. Groups and media share the hashes, so the
    /// full-attention group's event tells the place, sooner or later in the same batch.
    pub(super) fn enter_by_hash(&mut self, hashes: &[EngineHash], layer: Layer) {
        for hash in hashes {
            if let Some(place) = self.stream.place(*hash) {
                if self.recopy(*hash, place, layer) {
                    self.age(*hash, layer);
                }
            } else if self.has_room_for(*hash) {
                self.note_unplaced(*hash, layer);
            } else {
                self.skipped.capacity += 1;
                return;
            }
        }
    }

    /// One more hash may be counted, or this one is counted already.
    pub(super) fn has_room_for(&self, hash: EngineHash) -> bool {
        self.stream.references() < self.references_max || self.stream.is_unplaced(hash)
    }

    pub(super) fn note_unplaced(&mut self, hash: EngineHash, layer: Layer) {
        if let Some((pool, _, place)) = pool(self.stream, self.slot, layer) {
            pool.note_unplaced(hash, place);
        }
        self.age(hash, layer);
    }

    /// Counts a copy of a block under its hash, and those counted while its place was not known.
    #[inline(always)]
    pub(super) fn copy(&mut self, hash: EngineHash, spot: Spot, layer: Layer) -> Referred {
        let known = self.chains.find(spot.after, spot.key);
        let has_place = known.is_some() || self.chains.has_room();
        let has_room = has_place && self.has_room_for(hash);
        let Some((pool, ..)) = pool(self.stream, self.slot, layer) else { return Referred::Full };
        let chains = &mut *self.chains;
        let make = || chains.place(spot.after, spot.key, spot.more);
        let referred = pool.refer(hash, known, has_room, make);
        match referred {
            Referred::Counted(place) => {
                self.hold(place, layer);
                if self.stream.has_unplaced() {
                    self.recopy_unplaced(hash, place);
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

    /// Counts the copies that were told of before the block's place was known.
    pub(super) fn recopy_unplaced(&mut self, hash: EngineHash, place: Place) {
        if let Some(copies) = self.stream.pool.take_unplaced(hash) {
            self.recopy_all(hash, place, copies, |group| Layer::Main { group });
        }
        let slower = self.stream.slower.as_mut();
        if let Some(copies) = slower.and_then(|slower| slower.pool.take_unplaced(hash)) {
            self.recopy_all(hash, place, copies, |medium| Layer::Slower { medium });
        }
    }

    fn recopy_all(
        &mut self,
        hash: EngineHash,
        place: Place,
        copies: PerGroup,
        layer: impl Fn(usize) -> Layer,
    ) {
        for (at, copies) in copies.into_iter().enumerate() {
            for _ in 0..copies {
                self.recopy(hash, place, layer(at));
            }
        }
    }

    /// Counts a copy of a block whose place is known. Returns whether there was room for it.
    pub(super) fn recopy(&mut self, hash: EngineHash, place: Place, layer: Layer) -> bool {
        let Some((pool, ..)) = pool(self.stream, self.slot, layer) else { return false };
        match pool.refer(hash, Some(place), true, || place) {
            Referred::Counted(place) => {
                self.hold(place, layer);
                true
            }
            Referred::TooMany(_) | Referred::Conflict | Referred::Full => {
                self.skipped.copies += 1;
                false
            }
        }
    }

    #[inline]
    fn hold(&mut self, place: Place, layer: Layer) {
        let Some((pool, slot, at)) = pool(self.stream, self.slot, layer) else { return };
        let had = self.chains.store(place, slot, at);
        if had.has(at) {
            pool.add_spare(place, at);
        }
        if had.is_empty() {
            pool.blocks += 1;
            match (layer, self.entry) {
                (Layer::Slower { .. }, _) => self.admissions.slower += 1,
                (_, Entry::Told(Origin::Published)) => self.admissions.stored += 1,
                (_, Entry::Told(Origin::Replayed)) => self.admissions.restored += 1,
                (_, Entry::Recognized) => self.admissions.recognized += 1,
            }
        }
    }

    /// Notes when a copy came, if no event may ever take it off.
    pub(super) fn age(&mut self, hash: EngineHash, layer: Layer) {
        if let Layer::Slower { medium } = layer
            && let Some(slower) = &mut self.stream.slower
        {
            slower.age(Ageing { since: self.now, medium, hash });
        }
    }
}

/// The hashes of a layer, the slot that its holds go by, and its place among their groups. `main`: the stream's slot.
#[inline]
fn pool(stream: &mut StreamBlocks, main: Slot, layer: Layer) -> Option<(&mut References, Slot, usize)> {
    match layer {
        Layer::Main { group } => Some((&mut stream.pool, main, group)),
        Layer::Slower { medium } => {
            stream.slower.as_mut().map(|slower| (&mut slower.pool, slower.slot, medium))
        }
    }
}
