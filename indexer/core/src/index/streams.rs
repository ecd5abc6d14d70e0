//! What the index keeps per stream: what its engine holds, what is known of it, and how lookups read that.

use hashbrown::HashMap;

use crate::event::{EngineHash, Stored};
use crate::key::{BlockKey, KeyHasher};
use crate::prompt_keys::Layout;
use crate::stream::{StreamId, Trust};

use super::aside::Aside;
use super::cards::{Card, Reading, StreamCard};
use super::groups::Groups;
use super::keys::root_of;
use super::namespace;
use super::place::{Place, Slot};
use super::references::References;
use super::slower::Slower;
use super::stats::ClearCause;

/// All streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<Seat>,
    by_id: HashMap<StreamId, Slot>,
    /// Slots of the streams that have told of slower media.
    slower: Vec<Slot>,
    /// By slot, as lookups have it.
    shown: Vec<Card>,
}

/// Who has a slot.
#[derive(Debug)]
enum Seat {
    Free,
    Stream(StreamBlocks),
    /// The slower media of some stream.
    Slower,
}

#[derive(Debug)]
pub(super) struct StreamBlocks {
    pub(super) id: StreamId,
    pub(super) model: Box<str>,
    /// The key before that of a prompt's first block where nothing but the model tells the namespace; `None`: not asked for yet.
    root: Option<BlockKey>,
    pub(super) trust: Trust,
    /// The engine has told of blocks in another medium than its main pool.
    pub(super) has_other_media: bool,
    /// Of the full-attention groups' blocks; learnt from the first event.
    pub(super) layout: Option<Layout>,
    /// What lookups take for the layout until it is learnt: what blocks are expected by, never what any is held by.
    pub(super) guess: Option<Layout>,
    pub(super) groups: Groups,
    /// Blocks that the engine removed from its main pool.
    pub(super) evicted: u64,
    /// What the engine's main pool holds. Apart, so that what lookups read of all streams lies close together.
    pub(super) pool: Box<References>,
    /// Blocks told of whose place is not known.
    pub(super) aside: Box<Aside>,
    /// What other media hold; `None` until one was told of.
    pub(super) slower: Option<Box<Slower>>,
}

// === impl Streams ===

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut StreamBlocks> {
        self.slots.iter_mut().filter_map(Seat::stream_mut)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &StreamBlocks> {
        self.slots.iter().filter_map(Seat::stream)
    }

    /// Every slot there is, of streams or not.
    pub(super) fn all(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX)).map(Slot)
    }

    pub(super) fn slot(&self, id: StreamId) -> Option<Slot> {
        self.by_id.get(&id).copied()
    }

    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<&StreamBlocks> {
        self.slots.get(slot.index())?.stream()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut StreamBlocks> {
        self.slots.get_mut(slot.index())?.stream_mut()
    }

    pub(super) fn by_id(&self, id: StreamId) -> Option<&StreamBlocks> {
        self.get(self.slot(id)?)
    }

    /// Begins a stream that does not exist. Returns its slot.
    pub(super) fn add(&mut self, id: StreamId, model: &str) -> Slot {
        let slot = self.take_seat(Seat::Stream(StreamBlocks::new(id, model)));
        self.by_id.insert(id, slot);
        slot
    }

    /// Gives a stream another id. `None`: there is no such stream, or the other id is taken.
    pub(super) fn rename(&mut self, from: StreamId, to: StreamId) -> Option<Slot> {
        if self.by_id.contains_key(&to) {
            return None;
        }
        let slot = self.by_id.remove(&from)?;
        self.by_id.insert(to, slot);
        self.get_mut(slot)?.id = to;
        Some(slot)
    }

    /// Ends a stream that holds nothing any more.
    pub(super) fn remove(&mut self, id: StreamId) {
        if let Some(slot) = self.by_id.remove(&id) {
            self.leave_seat(slot);
        }
    }

    /// Makes sure that the stream can hold blocks of slower media. Returns their slot if they had none.
    pub(super) fn begin_slower(&mut self, slot: Slot) -> Option<Slot> {
        self.get(slot).filter(|stream| stream.slower.is_none())?;
        let own = self.take_seat(Seat::Slower);
        self.slower.push(slot);
        self.get_mut(slot)?.slower = Some(Box::new(Slower::new(own)));
        Some(own)
    }

    /// Ends the stream's slower media, which hold nothing any more.
    pub(super) fn end_slower(&mut self, slot: Slot) {
        if let Some(slower) = self.get_mut(slot).and_then(|stream| stream.slower.take()) {
            self.leave_seat(slower.slot);
            self.slower.retain(|other| *other != slot);
        }
    }

    /// Slots of the streams with slower media.
    pub(super) fn with_slower(&self) -> &[Slot] {
        &self.slower
    }

    fn take_seat(&mut self, taken: Seat) -> Slot {
        let free = self.slots.iter().position(|seat| matches!(seat, Seat::Free));
        let slot = free.unwrap_or(self.slots.len());
        match self.slots.get_mut(slot) {
            Some(seat) => *seat = taken,
            None => self.slots.push(taken),
        }
        Slot(u32::try_from(slot).unwrap_or(u32::MAX))
    }

    fn leave_seat(&mut self, slot: Slot) {
        if let Some(seat) = self.slots.get_mut(slot.index()) {
            *seat = Seat::Free;
        }
    }

    /// Notes that lookups have this card. Returns whether they had another one.
    pub(super) fn note_shown(&mut self, slot: Slot, card: Card) -> bool {
        if self.shown.len() <= slot.index() {
            self.shown.resize(slot.index() + 1, Card::Free);
        }
        self.shown.get_mut(slot.index()).is_some_and(|shown| std::mem::replace(shown, card) != card)
    }

    /// What lookups must know of whoever has the slot now.
    pub(super) fn card(&self, slot: Slot) -> Card {
        match self.slots.get(slot.index()) {
            None | Some(Seat::Free) => Card::Free,
            Some(Seat::Slower) => Card::Slower,
            Some(Seat::Stream(stream)) => Card::Stream(stream.card()),
        }
    }
}

// === impl Seat ===

impl Seat {
    #[inline]
    fn stream(&self) -> Option<&StreamBlocks> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Free | Self::Slower => None,
        }
    }

    fn stream_mut(&mut self) -> Option<&mut StreamBlocks> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Free | Self::Slower => None,
        }
    }
}

// === impl StreamBlocks ===

impl StreamBlocks {
    fn new(id: StreamId, model: &str) -> Self {
        Self {
            id,
            model: Box::from(model),
            root: None,
            trust: Trust::Recovering,
            has_other_media: false,
            evicted: 0,
            layout: None,
            guess: None,
            groups: Groups::default(),
            pool: Box::default(),
            aside: Box::default(),
            slower: None,
        }
    }

    /// Back to knowing nothing, for the engine may come back with another block size. Emptying the main pool empties no
    /// other: what slower media hold stays, and so does that there are any, until the engine restarts.
    pub(super) fn reset(&mut self, cause: ClearCause) {
        let slower = self.slower.take();
        let has_other_media = self.has_other_media && cause != ClearCause::Restarted;
        let (trust, guess) = (self.trust, self.guess);
        let mut new = Self { trust, guess, has_other_media, ..Self::new(self.id, &self.model) };
        if slower.is_some() {
            // It is the same process as before.
            new.layout = self.layout;
            new.groups = std::mem::take(&mut self.groups);
            new.slower = slower;
        }
        *self = new;
    }

    /// The key before that of the event's first block where that begins a prompt.
    #[inline]
    pub(super) fn root(&mut self, hasher: &KeyHasher, stored: &Stored) -> BlockKey {
        if !namespace::is_of_model(stored) {
            return root_of(hasher, &self.model, stored);
        }
        *self.root.get_or_insert_with(|| root_of(hasher, &self.model, stored))
    }

    /// Engine hashes that are held at least once, in the main pool and in slower media.
    pub(super) fn references(&self) -> usize {
        self.pool.len() + self.slower.as_ref().map_or(0, |slower| slower.pool.len())
    }

    /// The block named by an event before; `None` where it is not known.
    pub(super) fn place(&self, hash: EngineHash) -> Option<Place> {
        self.pool.place(hash).or_else(|| self.slower.as_ref()?.pool.place(hash))
    }

    /// Nothing of it waits for its place.
    pub(super) fn is_settled(&self) -> bool {
        !self.has_unplaced() && self.aside.is_empty()
    }

    /// Lookups read it by its layout and trust alone; whoever changes those [notes](super::Index::note) it.
    pub(super) fn is_plain(&self) -> bool {
        self.groups.is_one_full() && self.slower.is_none()
    }

    /// There are hashes that were told of without the place of their block.
    #[inline]
    pub(super) fn has_unplaced(&self) -> bool {
        self.pool.has_unplaced() || self.slower.as_ref().is_some_and(|slower| slower.pool.has_unplaced())
    }

    /// The hash was told of, but not where its block stands.
    pub(super) fn is_unplaced(&self, hash: EngineHash) -> bool {
        self.pool.is_unplaced(hash)
            || self.slower.as_ref().is_some_and(|slower| slower.pool.is_unplaced(hash))
    }

    /// Drops the block that has been aside for longest, with its copies. Returns how many held blocks that were: one,
    /// or none where it was kept for the sake of those behind it.
    pub(super) fn drop_oldest_aside(&mut self) -> u64 {
        self.aside.take_oldest().map_or(0, |hash| self.drop_unplaced(hash).into())
    }

    /// Forgets a block aside of which no copy is left.
    pub(super) fn let_go(&mut self, hash: EngineHash) {
        if !self.aside.is_empty() {
            let (pool, slower) = (&self.pool, self.slower.as_ref());
            let is_slower = |hash| slower.is_some_and(|slower| slower.pool.is_unplaced(hash));
            self.aside.let_go(hash, |hash| pool.is_unplaced(hash) || is_slower(hash));
        }
    }

    /// Drops the copies of a block whose place is not known. Returns whether there were any.
    pub(super) fn drop_unplaced(&mut self, hash: EngineHash) -> bool {
        let main = self.pool.take_unplaced(hash).is_some();
        let slower = self.slower.as_mut().is_some_and(|slower| slower.pool.take_unplaced(hash).is_some());
        main || slower
    }

    fn card(&self) -> StreamCard {
        let slower = self.slower.as_ref().map(|slower| slower.slot);
        StreamCard {
            id: self.id,
            trust: self.trust,
            layout: self.layout.or(self.guess),
            has_told: self.layout.is_some(),
            reading: match self.layout {
                Some(layout) => self.reading(layout),
                None => self.guess.filter(|_| self.trust.is_scored()).map(|_| Reading::Plain),
            },
            slower,
        }
    }

    /// How lookups read the stream, the layout of whose blocks this is; `None`: they do not.
    fn reading(&self, layout: Layout) -> Option<Reading> {
        if !self.trust.is_scored() {
            return None;
        }
        if self.groups.is_one_full() {
            return Some(Reading::Plain);
        }
        let full = self.groups.full();
        (!full.is_empty()).then(|| Reading::Grouped { full, windows: self.groups.windows(layout.size()) })
    }
}
