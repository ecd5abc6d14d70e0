//! What the index keeps per stream: which block each of its engine's hashes stands for.

use std::num::NonZeroU32;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::event::EngineHash;
use crate::stream::{StreamId, Trust};

use super::groups::{GROUPS_MAX, GroupMask, Groups, PerGroup, WindowBlocks};
use super::place::{ChainId, Place, SHRINK_BELOW, Slot};
use super::stats::ClearCause;

/// All streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<Option<StreamBlocks>>,
    /// Beside each slot: what a lookup needs of its stream.
    cards: Vec<Card>,
    by_id: HashMap<StreamId, Slot>,
    /// Streams that are read block by block.
    grouped: usize,
}

/// How lookups read a stream, in few bytes: they ask it of every stream that holds the beginning of a prompt. Kept by
/// [`Streams::note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Card {
    id: StreamId,
    /// Of a stream whose holds are read at once; 0: they are not.
    plain_size: u32,
    is_grouped: bool,
}

#[derive(Debug)]
pub(super) struct StreamBlocks {
    pub(super) id: StreamId,
    pub(super) model: Box<str>,
    pub(super) trust: Trust,
    /// The engine has told of blocks in another medium than its main pool.
    pub(super) has_other_media: bool,
    /// Of the full-attention groups; learnt from the first event.
    pub(super) block_size: Option<NonZeroU32>,
    pub(super) groups: Groups,
    hashes: HashMap<EngineHash, Referent>,
    /// Hashes that a sliding-window group named before the full one did: only the copies per group are known.
    unplaced: HashMap<EngineHash, PerGroup>,
    /// Copies beyond the first of a block in a group. Engines do not merge equal blocks, but rarely have any.
    spare: HashMap<Place, PerGroup>,
    /// Distinct blocks held.
    pub(super) blocks: usize,
}

/// What an engine hash stands for: the block's place, and the copies counted under this hash in all groups. One word:
/// there is one of them per held block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Referent {
    chain: u32,
    /// The place in the chain, above; the copies, in the lowest eight bits.
    at_and_copies: u32,
}

/// Most copies counted of one engine hash. More only come from clients that make the engine announce blocks again which
/// it never stored twice; with the cap, what that leaves behind is bounded.
pub(super) const COPIES_MAX: u8 = u8::MAX;

/// What became of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Referred {
    Counted(Place),
    /// There are [`COPIES_MAX`] already.
    TooMany(Place),
    /// The hash stands for another block.
    Conflict,
    /// The hash is new, and there is no room for it.
    Full,
}

/// How lookups read a stream's holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The only group is a full one: a hold's leading blocks are all there is to it.
    Plain,
    /// Block by block: these groups must have each of them, and these have the last ones.
    Grouped { full: GroupMask, windows: WindowBlocks },
}

// === impl Streams ===

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &StreamBlocks> {
        self.slots.iter().flatten()
    }

    pub(super) fn slot(&self, id: StreamId) -> Option<Slot> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&StreamBlocks> {
        self.slots.get(slot.index())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut StreamBlocks> {
        self.slots.get_mut(slot.index())?.as_mut()
    }

    pub(super) fn by_id(&self, id: StreamId) -> Option<&StreamBlocks> {
        self.get(self.slot(id)?)
    }

    /// Begins a stream that does not exist.
    pub(super) fn add(&mut self, id: StreamId, model: &str) {
        let stream = Some(StreamBlocks::new(id, model));
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(free) => {
                if let Some(slot) = self.slots.get_mut(free) {
                    *slot = stream;
                }
                free
            }
            None => {
                self.slots.push(stream);
                self.slots.len() - 1
            }
        };
        let slot = Slot(u32::try_from(slot).unwrap_or(u32::MAX));
        self.by_id.insert(id, slot);
        self.note(slot);
    }

    /// Ends a stream that holds nothing any more.
    pub(super) fn remove(&mut self, id: StreamId) {
        if let Some(slot) = self.by_id.remove(&id)
            && let Some(stream) = self.slots.get_mut(slot.index())
        {
            *stream = None;
            self.note(slot);
        }
    }

    /// To be called after anything changed that [`StreamBlocks::reading`] goes by.
    pub(super) fn note(&mut self, slot: Slot) {
        let new = self.get(slot).map_or(Card::NONE, Card::of);
        if self.cards.len() <= slot.index() {
            self.cards.resize(slot.index() + 1, Card::NONE);
        }
        if let Some(card) = self.cards.get_mut(slot.index()) {
            self.grouped = self.grouped + usize::from(new.is_grouped) - usize::from(card.is_grouped);
            *card = new;
        }
    }

    /// The stream's name, if its holds are read at once by lookups for this block size.
    #[inline]
    pub(super) fn plain(&self, slot: Slot, size: u32) -> Option<StreamId> {
        self.cards.get(slot.index()).filter(|card| card.plain_size == size).map(|card| card.id)
    }

    /// Some stream is read block by block.
    pub(super) fn has_grouped(&self) -> bool {
        self.grouped > 0
    }

    /// Whether nothing that lookups go by changed without being noted.
    pub(super) fn is_noted(&self) -> bool {
        let cards = self.slots.iter().map(|stream| stream.as_ref().map_or(Card::NONE, Card::of));
        let grouped = self.cards.iter().filter(|card| card.is_grouped).count();
        cards.eq(self.cards.iter().copied()) && grouped == self.grouped
    }
}

// === impl Card ===

impl Card {
    const NONE: Self = Self { id: StreamId(0), plain_size: 0, is_grouped: false };

    fn of(stream: &StreamBlocks) -> Self {
        let size = stream.block_size.map_or(0, NonZeroU32::get);
        let reading = stream.reading(size);
        let plain_size = if matches!(reading, Some(Reading::Plain)) { size } else { 0 };
        Self { id: stream.id, plain_size, is_grouped: matches!(reading, Some(Reading::Grouped { .. })) }
    }
}

// === impl StreamBlocks ===

impl StreamBlocks {
    fn new(id: StreamId, model: &str) -> Self {
        Self {
            id,
            model: Box::from(model),
            trust: Trust::Recovering,
            has_other_media: false,
            block_size: None,
            groups: Groups::default(),
            hashes: HashMap::new(),
            unplaced: HashMap::new(),
            spare: HashMap::new(),
            blocks: 0,
        }
    }

    /// Back to knowing nothing, for the engine may come back with another block size. That it has another medium stays
    /// true until it restarts: emptying the main pool does not empty the other.
    pub(super) fn reset(&mut self, cause: ClearCause) {
        let has_other_media = self.has_other_media && cause != ClearCause::Restarted;
        *self = Self { trust: self.trust, has_other_media, ..Self::new(self.id, &self.model) };
    }

    /// Engine hashes that are held at least once.
    pub(super) fn references(&self) -> usize {
        self.hashes.len() + self.unplaced.len()
    }

    /// The block named by an event before; `None` where it is not known.
    pub(super) fn place(&self, hash: EngineHash) -> Option<Place> {
        self.hashes.get(&hash).map(Referent::place)
    }

    /// Brings what is known of these hashes into the cache, all at once: looked up one by one between other work, each
    /// would be waited for by itself, which is most of what an event costs.
    pub(super) fn fetch(&self, hashes: &[EngineHash]) {
        let known = hashes.iter().filter(|hash| self.hashes.contains_key(*hash)).count();
        std::hint::black_box(known);
    }

    /// Chains that the stream's events named; may name one more than once.
    pub(super) fn chains(&self) -> impl Iterator<Item = ChainId> {
        self.hashes.values().map(|referent| ChainId(referent.chain))
    }

    /// Every engine hash with its copies in all groups, in no order.
    pub(super) fn copies(&self) -> impl Iterator<Item = (EngineHash, u32)> {
        let placed = self.hashes.iter().map(|(hash, referent)| (*hash, referent.copies()));
        let sum = |groups: &PerGroup| groups.iter().map(|copies| u32::from(*copies)).sum();
        placed.chain(self.unplaced.iter().map(move |(hash, groups)| (*hash, sum(groups))))
    }

    pub(super) fn is_unplaced(&self, hash: EngineHash) -> bool {
        self.unplaced.contains_key(&hash)
    }

    /// Counts a copy under the hash. `known`: the place of the block that it stands for, if the block has one; else
    /// `make` gives it one, unless there is no room for new hashes.
    ///
    /// Always inlined: what `make` works with must be in registers. Read back from memory right after it was written, in
    /// other portions, it would wait for all writes before it, the one of the last block's entry among them.
    #[inline(always)]
    pub(super) fn refer(
        &mut self,
        hash: EngineHash,
        known: Option<Place>,
        has_room: bool,
        make: impl FnOnce() -> Place,
    ) -> Referred {
        match self.hashes.entry(hash) {
            Entry::Occupied(occupied) if Some(occupied.get().place()) != known => Referred::Conflict,
            Entry::Occupied(mut occupied) => {
                let place = occupied.get().place();
                if occupied.get_mut().count() { Referred::Counted(place) } else { Referred::TooMany(place) }
            }
            Entry::Vacant(_) if !has_room && !self.unplaced.contains_key(&hash) => Referred::Full,
            Entry::Vacant(vacant) => {
                let place = known.unwrap_or_else(make);
                vacant.insert(Referent::new(place));
                Referred::Counted(place)
            }
        }
    }

    /// Takes one copy off the hash, and the hash with its last one.
    pub(super) fn unrefer(&mut self, hash: EngineHash) {
        if let Entry::Occupied(mut occupied) = self.hashes.entry(hash)
            && occupied.get_mut().uncount()
        {
            occupied.remove();
            if self.hashes.len() < self.hashes.capacity() / SHRINK_BELOW {
                self.hashes.shrink_to(self.hashes.len() * 2);
            }
        }
    }

    /// Counts a copy in a group of a hash whose block is not known yet.
    pub(super) fn note_unplaced(&mut self, hash: EngineHash, group: usize) {
        if let Some(copies) = self.unplaced.entry(hash).or_default().get_mut(group) {
            *copies = copies.saturating_add(1);
        }
    }

    /// The copies counted while the block was not known, if there were any.
    pub(super) fn take_unplaced(&mut self, hash: EngineHash) -> Option<PerGroup> {
        if self.unplaced.is_empty() {
            return None;
        }
        self.unplaced.remove(&hash)
    }

    /// Takes one copy in the group off such a hash; whether there was one.
    pub(super) fn release_unplaced(&mut self, hash: EngineHash, group: usize) -> bool {
        let Entry::Occupied(mut occupied) = self.unplaced.entry(hash) else { return false };
        let had = match occupied.get_mut().get_mut(group) {
            Some(copies) if *copies > 0 => {
                *copies -= 1;
                true
            }
            _ => false,
        };
        if *occupied.get() == [0; GROUPS_MAX] {
            occupied.remove();
        }
        had
    }

    /// Counts one more copy of a block that the group has already.
    pub(super) fn add_spare(&mut self, place: Place, group: usize) {
        if let Some(copies) = self.spare.entry(place).or_default().get_mut(group) {
            *copies = copies.saturating_add(1);
        }
    }

    /// Takes such a copy off; `false`: there was only one.
    pub(super) fn take_spare(&mut self, place: Place, group: usize) -> bool {
        if self.spare.is_empty() {
            return false;
        }
        let Entry::Occupied(mut occupied) = self.spare.entry(place) else { return false };
        let Some(copies) = occupied.get_mut().get_mut(group).filter(|copies| **copies > 0) else {
            return false;
        };
        *copies -= 1;
        if *occupied.get() == [0; GROUPS_MAX] {
            occupied.remove();
        }
        true
    }

    /// How lookups for this block size read the stream; `None`: they do not.
    pub(super) fn reading(&self, size: u32) -> Option<Reading> {
        let block_size = self.block_size.filter(|learnt| learnt.get() == size)?;
        if !self.trust.is_scored() {
            return None;
        }
        if self.groups.is_one_full() {
            return Some(Reading::Plain);
        }
        let full = self.groups.full();
        (!full.is_empty()).then(|| Reading::Grouped { full, windows: self.groups.windows(block_size) })
    }
}

// === impl Referent ===

impl Referent {
    const COPIES_BITS: u32 = u8::BITS;

    fn new(place: Place) -> Self {
        Self { chain: place.chain.0, at_and_copies: place.at << Self::COPIES_BITS | 1 }
    }

    fn place(&self) -> Place {
        Place { chain: ChainId(self.chain), at: self.at_and_copies >> Self::COPIES_BITS }
    }

    fn copies(self) -> u32 {
        self.at_and_copies & u32::from(COPIES_MAX)
    }

    /// `false`: there is no room for one more.
    fn count(&mut self) -> bool {
        let has_room = self.copies() < u32::from(COPIES_MAX);
        if has_room {
            self.at_and_copies += 1;
        }
        has_room
    }

    /// Whether that was the last one.
    fn uncount(&mut self) -> bool {
        if self.copies() <= 1 {
            return true;
        }
        self.at_and_copies -= 1;
        false
    }
}
