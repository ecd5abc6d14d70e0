//! What lookups need to know of the streams, in few bytes each: they ask it of every stream that holds the beginning of a
//! prompt.

use hashbrown::HashMap;

use crate::prompt_keys::Layout;
use crate::stream::{StreamId, Trust};

use super::groups::{GroupMask, WindowBlocks};
use super::place::Slot;

/// Of all streams, by slot.
#[derive(Debug, Default)]
pub(super) struct Cards {
    cards: Vec<Card>,
    /// The little of them that is asked most.
    lines: Vec<Line>,
    /// The streams' names alone, for where they are listed by the hundred.
    names: Vec<StreamId>,
    by_id: HashMap<StreamId, Slot>,
    /// Streams that are read block by block.
    grouped: usize,
    /// Slots whose card is not [even](Card::is_even).
    uneven: usize,
    /// Names do not rise with slots, for an endpoint has left and another one come.
    is_shuffled: bool,
    /// Slots of the streams that have slower media.
    slower: Vec<Slot>,
}

/// Of a slot in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    id: StreamId,
    /// Of a stream whose holds are read at once.
    plain: Option<Layout>,
}

/// Of whoever has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Card {
    /// Nobody.
    Free,
    /// The slower media of some stream.
    Slower,
    /// A stream that is being emptied: neither looked up nor speculated on, though it still holds something.
    Emptying,
    Stream(StreamCard),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamCard {
    pub(super) id: StreamId,
    pub(super) trust: Trust,
    /// `None`: the stream holds nothing in its main pool, nor can anything be expected in it.
    pub(super) layout: Option<Layout>,
    /// The layout is what the stream's events told. Otherwise it is a guess, and all that counts are expected blocks.
    pub(super) has_told: bool,
    /// `None`: lookups do not read the stream.
    pub(super) reading: Option<Reading>,
    /// The slot of its slower media, if it has any.
    pub(super) slower: Option<Slot>,
}

/// How lookups read a stream's holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The only group is a full one: a hold's leading blocks are all there is to it.
    Plain,
    /// Block by block: these groups must have each of them, and these have the last ones.
    Grouped { full: GroupMask, windows: WindowBlocks },
}

// === impl Cards ===

impl Cards {
    /// Puts a card in the place of the slot's last one.
    pub(super) fn put(&mut self, slot: Slot, new: Card) {
        let at = slot.index();
        if self.cards.len() <= at {
            self.cards.resize(at + 1, Card::Free);
            self.lines.resize(at + 1, Card::Free.line());
            self.names.resize(at + 1, StreamId::default());
        }
        let Some(card) = self.cards.get_mut(at) else { return };
        let old = std::mem::replace(card, new);
        if let (Some(line), Some(name)) = (self.lines.get_mut(at), self.names.get_mut(at)) {
            *line = new.line();
            *name = line.id;
        }
        self.grouped = self.grouped + usize::from(new.is_grouped()) - usize::from(old.is_grouped());
        self.uneven = self.uneven + usize::from(!new.is_even()) - usize::from(!old.is_even());
        let (left, come) = (old.stream().map(|stream| stream.id), new.stream().map(|stream| stream.id));
        if left != come {
            left.map(|id| self.by_id.remove(&id));
            come.map(|id| self.by_id.insert(id, slot));
            self.is_shuffled = !self.streams().is_sorted_by_key(|stream| stream.id);
        }
        if old.has_slower() != new.has_slower() {
            self.slower.retain(|other| *other != slot);
            self.slower.extend(new.has_slower().then_some(slot));
        }
    }

    pub(super) fn get(&self, slot: Slot) -> Card {
        self.cards.get(slot.index()).copied().unwrap_or(Card::Free)
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = &StreamCard> {
        self.cards.iter().filter_map(Card::stream)
    }

    pub(super) fn slot(&self, id: StreamId) -> Option<Slot> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn stream(&self, slot: Slot) -> Option<&StreamCard> {
        self.cards.get(slot.index())?.stream()
    }

    /// The names of the streams, by slot.
    pub(super) fn names(&self) -> &[StreamId] {
        &self.names
    }

    /// The name of the stream with this slot, if the stream's holds are read at once by lookups for this layout.
    #[inline]
    pub(super) fn plain(&self, slot: Slot, layout: Layout) -> Option<StreamId> {
        self.lines.get(slot.index()).filter(|line| line.plain == Some(layout)).map(|line| line.id)
    }

    /// Lookups list every stream that has a hold in its slot, with the leading blocks of that.
    #[inline]
    pub(super) fn are_even(&self) -> bool {
        self.uneven == 0
    }

    /// Streams sorted by slot are not sorted by name.
    pub(super) fn are_shuffled(&self) -> bool {
        self.is_shuffled
    }

    /// Some stream is read block by block.
    pub(super) fn has_grouped(&self) -> bool {
        self.grouped > 0
    }

    /// Slots of the streams with slower media.
    pub(super) fn with_slower(&self) -> &[Slot] {
        &self.slower
    }
}

// === impl Card ===

impl Card {
    pub(super) fn stream(&self) -> Option<&StreamCard> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Free | Self::Slower | Self::Emptying => None,
        }
    }

    /// Whatever is held in this slot counts, in any lookup that meets it: blocks of several sizes never meet, and a stream
    /// without a layout holds nothing.
    fn is_even(&self) -> bool {
        match self {
            Self::Free => true,
            Self::Slower | Self::Emptying => false,
            Self::Stream(stream) => stream
                .layout
                .is_none_or(|layout| layout.ahead() == 0 && stream.reading == Some(Reading::Plain)),
        }
    }

    fn is_grouped(&self) -> bool {
        self.stream().is_some_and(|stream| matches!(stream.reading, Some(Reading::Grouped { .. })))
    }

    fn has_slower(&self) -> bool {
        self.stream().is_some_and(|stream| stream.slower.is_some())
    }

    fn line(&self) -> Line {
        let Self::Stream(stream) = self else { return Line { id: StreamId(0), plain: None } };
        let is_plain = stream.reading == Some(Reading::Plain);
        Line { id: stream.id, plain: stream.layout.filter(|_| is_plain) }
    }
}

// === impl StreamCard ===

impl StreamCard {
    /// How lookups for this layout read the stream; `None`: they do not.
    pub(super) fn reading(&self, layout: Layout) -> Option<Reading> {
        self.reading.filter(|_| self.layout == Some(layout))
    }
}
