//! What the index keeps per stream: what its engine holds, what is known of it, and how lookups read that.

use std::num::NonZeroU32;

use hashbrown::HashMap;

use crate::stream::{StreamId, Trust};

use super::aside::Aside;
use super::groups::{GroupMask, Groups, WindowBlocks};
use super::place::Slot;
use super::references::References;
use super::stats::ClearCause;

/// All streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<Option<StreamBlocks>>,
    by_id: HashMap<StreamId, Slot>,
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
    /// What the engine's main pool holds.
    pub(super) pool: References,
    /// Blocks told of whose place is not known.
    pub(super) aside: Box<Aside>,
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
        self.slots.iter_mut().flatten()
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

    pub(super) fn by_id_mut(&mut self, id: StreamId) -> Option<&mut StreamBlocks> {
        self.get_mut(self.slot(id)?)
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
        self.by_id.insert(id, Slot(u32::try_from(slot).unwrap_or(u32::MAX)));
    }

    /// Ends a stream that holds nothing any more.
    pub(super) fn remove(&mut self, id: StreamId) {
        if let Some(slot) = self.by_id.remove(&id)
            && let Some(stream) = self.slots.get_mut(slot.index())
        {
            *stream = None;
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
            block_size: None,
            groups: Groups::default(),
            pool: References::default(),
            aside: Box::default(),
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
        self.pool.len()
    }

    /// Drops the block that has been aside for longest, with its copies. Returns how many held blocks that were: one,
    /// or none where it was kept for the sake of those behind it.
    pub(super) fn drop_oldest_aside(&mut self) -> u64 {
        let dropped = self.aside.take_oldest();
        dropped.and_then(|hash| self.pool.take_unplaced(hash)).map_or(0, |_| 1)
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
