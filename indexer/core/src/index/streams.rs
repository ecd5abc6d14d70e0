//! What the index keeps per stream: what its engine holds, what is known of it, and how lookups read that.

use hashbrown::HashMap;

use crate::event::EngineHash;
use crate::prompt_keys::Layout;
use crate::stream::{StreamId, Trust};

use super::aside::Aside;
use super::groups::{GroupMask, Groups, WindowBlocks};
use super::place::{Place, Slot};
use super::references::References;
use super::slower::Slower;
use super::stats::ClearCause;

/// All streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<Seat>,
    /// Beside each slot: what a lookup needs of its stream.
    cards: Vec<Card>,
    by_id: HashMap<StreamId, Slot>,
    /// Streams that are read block by block.
    grouped: usize,
    /// Slots of the streams that have told of slower media.
    slower: Vec<Slot>,
}

/// How lookups read a stream, in few bytes: they ask it of every stream that holds the beginning of a prompt. Kept by
/// [`Streams::note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Card {
    id: StreamId,
    is_grouped: bool,
    /// Of a stream whose holds are read at once.
    plain: Option<Layout>,
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
    pub(super) trust: Trust,
    /// The engine has told of blocks in another medium than its main pool.
    pub(super) has_other_media: bool,
    /// Of the full-attention groups' blocks; learnt from the first event.
    pub(super) layout: Option<Layout>,
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

    /// Begins a stream that does not exist.
    pub(super) fn add(&mut self, id: StreamId, model: &str) {
        let slot = self.take_seat(Seat::Stream(StreamBlocks::new(id, model)));
        self.by_id.insert(id, slot);
    }

    /// Ends a stream that holds nothing any more.
    pub(super) fn remove(&mut self, id: StreamId) {
        if let Some(slot) = self.by_id.remove(&id) {
            self.leave_seat(slot);
        }
    }

    /// Makes sure that the stream can hold blocks of slower media.
    pub(super) fn begin_slower(&mut self, slot: Slot) {
        if self.get(slot).is_some_and(|stream| stream.slower.is_none()) {
            let own = self.take_seat(Seat::Slower);
            self.slower.push(slot);
            if let Some(stream) = self.get_mut(slot) {
                stream.slower = Some(Box::new(Slower::new(own)));
            }
        }
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
        let slot = Slot(u32::try_from(slot).unwrap_or(u32::MAX));
        self.note(slot);
        slot
    }

    fn leave_seat(&mut self, slot: Slot) {
        if let Some(seat) = self.slots.get_mut(slot.index()) {
            *seat = Seat::Free;
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

    /// The stream's name, if its holds are read at once by lookups for this layout.
    #[inline]
    pub(super) fn plain(&self, slot: Slot, layout: Layout) -> Option<StreamId> {
        self.cards.get(slot.index()).filter(|card| card.plain == Some(layout)).map(|card| card.id)
    }

    /// Some stream is read block by block.
    pub(super) fn has_grouped(&self) -> bool {
        self.grouped > 0
    }

    /// Whether nothing that lookups go by changed without being noted.
    pub(super) fn is_noted(&self) -> bool {
        let cards = self.slots.iter().map(|seat| seat.stream().map_or(Card::NONE, Card::of));
        let grouped = self.cards.iter().filter(|card| card.is_grouped).count();
        cards.eq(self.cards.iter().copied()) && grouped == self.grouped
    }
}

// === impl Card ===

impl Card {
    const NONE: Self = Self { id: StreamId(0), is_grouped: false, plain: None };

    fn of(stream: &StreamBlocks) -> Self {
        let reading = stream.layout.and_then(|layout| stream.reading(layout));
        Self {
            id: stream.id,
            is_grouped: matches!(reading, Some(Reading::Grouped { .. })),
            plain: stream.layout.filter(|_| matches!(reading, Some(Reading::Plain))),
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
            trust: Trust::Recovering,
            has_other_media: false,
            evicted: 0,
            layout: None,
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
        let mut new = Self { trust: self.trust, has_other_media, ..Self::new(self.id, &self.model) };
        if slower.is_some() {
            // It is the same process as before.
            new.layout = self.layout;
            new.groups = std::mem::take(&mut self.groups);
            new.slower = slower;
        }
        *self = new;
    }

    /// Engine hashes that are held at least once, in the main pool and in slower media.
    pub(super) fn references(&self) -> usize {
        self.pool.len() + self.slower.as_ref().map_or(0, |slower| slower.pool.len())
    }

    /// The block named by an event before; `None` where it is not known.
    pub(super) fn place(&self, hash: EngineHash) -> Option<Place> {
        self.pool.place(hash).or_else(|| self.slower.as_ref()?.pool.place(hash))
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

    /// How lookups for this layout read the stream; `None`: they do not.
    #[inline]
    pub(super) fn reading(&self, layout: Layout) -> Option<Reading> {
        let layout = self.layout.filter(|learnt| *learnt == layout)?;
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
