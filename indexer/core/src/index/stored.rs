//! Applying `BlockStored`.

use std::num::NonZeroU32;

use crate::event::{EngineHash, Stored};
use crate::key::{BlockKey, KeyHasher};
use crate::prompt_keys::Layout;
use crate::stream::{Millis, StreamId};

use super::chains::Chains;
use super::groups::{PerGroup, Role};
use super::place::{Place, Slot};
use super::references::{References, Referred, Refused};
use super::slices::Run;
use super::slower::{self, Ageing};
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

impl Index {
    pub(super) fn store(&mut self, id: StreamId, stored: &Stored, origin: Origin) {
        let Some(slot) = self.streams.slot(id) else { return };
        match stored.medium.slower() {
            None => self.store_main(slot, stored, origin),
            Some(medium) => self.store_slower(slot, stored, medium, origin),
        }
    }

    fn store_main(&mut self, slot: Slot, stored: &Stored, origin: Origin) {
        let blocks = count(stored.hashes.len());
        let Some(stream) = self.streams.get_mut(slot) else { return };
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
        let read_by = (stream.layout, stream.groups.is_one_full());
        let Some((group, role)) = stream.groups.note(stored.group, size, fills) else {
            self.stats.skipped.groups += blocks;
            return;
        };
        let layout = namespace::layout_of(stored, size);
        stream.pool.fetch(&stored.hashes);
        let fits = |learnt: Layout, layout: Layout| {
            // A block with fewer tokens ahead is one that no prompt asks for.
            layout.size() == learnt.size() && layout.ahead() <= learnt.ahead()
        };
        let layout = layout.filter(|_| fills);
        let learnt = layout.filter(|_| role == Role::Full).map(|layout| *stream.layout.get_or_insert(layout));
        if read_by != (stream.layout, stream.groups.is_one_full()) {
            // Before lookups see the first block that is to be read so.
            self.note(slot);
        }
        if let (Some(learnt), Some(layout)) = (learnt, layout)
            && fits(learnt, layout)
            && self.enter_in_slices(&Run { slot, group, stored, width, origin })
        {
            return;
        }
        self.change(slot, Entry::Told(origin), |entering| {
            let layer = Layer::Main { group };
            if role != Role::Full {
                entering.enter_by_hash(&stored.hashes, layer);
                return;
            }
            let (Some(learnt), Some(layout)) = (learnt, layout) else {
                entering.skipped.token_mismatch += blocks;
                return;
            };
            if fits(learnt, layout) {
                entering.enter(stored, stored.hashes.iter().copied(), width, layer);
            } else {
                entering.skipped.block_size += blocks;
            }
        });
    }

    /// Blocks in a slower medium: by their tokens where those are told, else by hash alone.
    fn store_slower(&mut self, slot: Slot, stored: &Stored, medium: usize, origin: Origin) {
        let blocks = count(stored.hashes.len());
        let Some(stream) = self.streams.get_mut(slot) else { return };
        stream.has_other_media = true;
        if !stream.groups.may_be_full(stored.group.index) {
            self.stats.skipped.other_medium += blocks;
            return;
        }
        let is_placeholder = stored.tokens.is_empty() || stored.block_size == 0;
        // Engines with such drafters have no connectors.
        let size = stream.layout.filter(|layout| layout.ahead() == 0).map(Layout::size);
        let told = stored.block_size;
        if !is_placeholder && stored.has_lora_id && stored.lora_name.is_none() {
            self.stats.skipped.unnamed_lora += blocks;
            return;
        }
        let width = usize::try_from(told).unwrap_or(usize::MAX);
        if !is_placeholder && stored.hashes.len().checked_mul(width) != Some(stored.tokens.len()) {
            self.stats.skipped.token_mismatch += blocks;
            return;
        }
        self.begin_slower(slot);
        self.change(slot, Entry::Told(origin), |entering| {
            let layer = Layer::Slower { medium };
            if is_placeholder {
                entering.enter_by_hash(&stored.hashes, layer);
                return;
            }
            // Connectors may store several of the engine's blocks under one hash.
            let parts = size.and_then(|size| told.is_multiple_of(size).then_some(told / size));
            let has_room_for_extras = |parts| parts == 1 || stored.extra_keys.is_empty();
            let slower = entering.stream.slower.as_mut();
            let learn = |parts: &u32| slower.is_some_and(|slower| slower.learn_parts(medium, *parts));
            match parts.filter(|parts| has_room_for_extras(*parts)).filter(learn) {
                None => entering.skipped.block_size += blocks,
                Some(parts) => {
                    let hashes = stored.hashes.iter().flat_map(|hash| slower::parts(*hash, parts));
                    let width = size.map_or(usize::MAX, |size| usize::try_from(size).unwrap_or(usize::MAX));
                    entering.enter(stored, hashes, width, layer);
                }
            }
        });
    }

    /// Lets blocks enter a stream, and keeps sums and limits.
    pub(super) fn change(&mut self, slot: Slot, entry: Entry, enter: impl FnOnce(&mut Entering<'_>)) {
        let room = self.limits.references_max.saturating_sub(self.references);
        let Some(stream) = self.streams.get_mut(slot) else { return };
        let (references, aside_bytes) = (stream.references(), stream.aside.bytes());
        let mut shown = self.shown.write();
        let mut entering = Entering {
            hasher: &self.hasher,
            references_max: (references + room).min(self.limits.stream_references_max),
            stream,
            slot,
            chains: &mut shown.chains,
            arrivals: &mut self.arrivals,
            attached: &mut self.stats.aside.attached,
            admissions: &mut self.stats.admissions,
            skipped: &mut self.stats.skipped,
            entry,
            attach_left: self.limits.attached_max,
            now: self.now,
        };
        enter(&mut entering);
        entering.keep_aside_within(self.limits.stream_aside_bytes_max);
        let stream = entering.stream;
        self.references = self.references + stream.references() - references;
        self.aside_bytes = self.aside_bytes + stream.aside.bytes() - aside_bytes;
        drop(shown);
        self.keep_aside_within_all();
    }
}

// === impl Entering ===

impl Entering<'_> {
    /// Blocks whose tokens tell which they are, `width` of them each, in the order of `hashes`.
    fn enter(
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
        let keys = keys_of(self.hasher, root, stored, width);
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
            return Some((None, root_of(self.hasher, self.stream, stored)));
        };
        let place = self.stream.place(parent)?;
        Some((Some(place), self.chains.key(place)?))
    }

    /// Blocks whose tokens do not tell which they are: by hash alone. Groups and media share the hashes, so the
    /// full-attention group's event tells the place, sooner or later in the same batch.
    fn enter_by_hash(&mut self, hashes: &[EngineHash], layer: Layer) {
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

/// The key before that of an event's first block where that begins a prompt.
pub(super) fn root_of(hasher: &KeyHasher, stream: &StreamBlocks, stored: &Stored) -> BlockKey {
    hasher.root(&namespace::of_first_block(&stream.model, stored))
}

/// The keys of an event's blocks, which come after the one with the key `root`.
pub(super) fn keys_of(hasher: &KeyHasher, root: BlockKey, stored: &Stored, width: usize) -> Vec<BlockKey> {
    let key = |parent: &mut BlockKey, (position, tokens): (usize, &[u32])| {
        *parent = hasher.block(*parent, tokens, &namespace::extras_of(stored, position));
        Some(*parent)
    };
    stored.tokens.chunks_exact(width.max(1)).enumerate().scan(root, key).collect()
}
