//! Block key → who holds it. A plain map: one probe per block of a lookup.

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::key::BlockKey;
use crate::stream::{Millis, StreamId};

use super::groups::{GROUPS_MAX, GroupMask, PerGroup};

/// One stream's hold on one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) stream: StreamId,
    /// Physical copies per KV group, by the stream's group slot. At most [`COPIES_MAX`].
    references: PerGroup,
    /// Until when it is held speculatively; 0: it is not.
    speculated_until: Millis,
}

/// Most copies counted of one block in one group. More only come from clients that make the engine announce blocks
/// again which it never stored twice; with the cap, what that leaves behind is bounded.
pub(super) const COPIES_MAX: u8 = u8::MAX;

/// What became of a new reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The stream did not hold the block before.
    First,
    Further,
    /// Not counted: there are [`COPIES_MAX`] already.
    TooMany,
}

/// What became of a removed reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// The stream holds the block no more.
    Last,
    StillHeld,
    NotHeld,
}

#[derive(Debug, Default)]
pub(super) struct BlockTable {
    holders: HashMap<BlockKey, Holders, BuildHasherDefault<KeyAsHash>>,
}

/// Never empty; sorted by stream. Most blocks have one holder, which needs no allocation.
#[derive(Debug)]
enum Holders {
    One(Holder),
    Many(Vec<Holder>),
}

/// A block key is uniform and secret already: it is its own hash.
#[derive(Default)]
pub(super) struct KeyAsHash(u64);

// === impl BlockTable ===

impl BlockTable {
    pub(super) fn len(&self) -> usize {
        self.holders.len()
    }

    /// Holders of the block, sorted by stream.
    pub(super) fn holders(&self, key: BlockKey) -> &[Holder] {
        self.holders.get(&key).map_or(&[], Holders::as_slice)
    }

    /// Whether the stream holds the block by its events.
    pub(super) fn is_stored(&self, key: BlockKey, stream: StreamId) -> bool {
        self.holders.get(&key).and_then(|holders| holders.get(stream)).is_some_and(Holder::is_stored)
    }

    /// From here on the stream's events tell what it holds, so speculations on the block are over: one that outlived
    /// the block's arrival would hide its eviction.
    pub(super) fn add(&mut self, key: BlockKey, stream: StreamId, group: usize, copies: u8) -> Added {
        self.change(key, stream, |holder| {
            holder.speculated_until = Millis(0);
            let was_stored = holder.is_stored();
            match holder.references.get_mut(group) {
                Some(references) if *references < COPIES_MAX => {
                    *references = references.saturating_add(copies)
                }
                _ => return Added::TooMany,
            }
            if was_stored { Added::Further } else { Added::First }
        })
    }

    pub(super) fn release(&mut self, key: BlockKey, stream: StreamId, group: usize) -> Released {
        if !self.is_stored(key, stream) {
            return Released::NotHeld;
        }
        self.change(key, stream, |holder| {
            match holder.references.get_mut(group) {
                Some(references) if *references > 0 => *references -= 1,
                _ => return Released::NotHeld,
            }
            if holder.is_stored() { Released::StillHeld } else { Released::Last }
        })
    }

    /// Drops all references of the stream; whether there were any.
    pub(super) fn release_all(&mut self, key: BlockKey, stream: StreamId) -> bool {
        self.is_stored(key, stream)
            && self.change(key, stream, |holder| {
                holder.references = [0; GROUPS_MAX];
                true
            })
    }

    /// Whether the block was not held speculatively before.
    pub(super) fn speculate(&mut self, key: BlockKey, stream: StreamId, until: Millis) -> bool {
        self.change(key, stream, |holder| {
            let is_first = !holder.is_speculated();
            holder.speculated_until = holder.speculated_until.max(until);
            is_first
        })
    }

    /// Ends a speculation that was to last until `until`; whether the block was held by it and is not any more.
    pub(super) fn unspeculate(&mut self, key: BlockKey, stream: StreamId, until: Millis) -> bool {
        self.change(key, stream, |holder| {
            let was_last = holder.is_speculated() && holder.speculated_until <= until;
            if was_last {
                holder.speculated_until = Millis(0);
            }
            was_last
        })
    }

    /// Changes the stream's holder, which is made if need be and dropped if nothing is left of it.
    fn change<T>(&mut self, key: BlockKey, stream: StreamId, change: impl FnOnce(&mut Holder) -> T) -> T {
        match self.holders.entry(key) {
            Entry::Vacant(vacant) => {
                let mut holder = Holder::new(stream);
                let result = change(&mut holder);
                if !holder.is_empty() {
                    vacant.insert(Holders::One(holder));
                }
                result
            }
            Entry::Occupied(mut occupied) => {
                let holders = occupied.get_mut();
                let holder = holders.get_or_insert(stream);
                let result = change(holder);
                if holder.is_empty() && holders.remove(stream) {
                    occupied.remove();
                }
                result
            }
        }
    }
}

// === impl Holder ===

impl Holder {
    fn new(stream: StreamId) -> Self {
        Self { stream, references: [0; GROUPS_MAX], speculated_until: Millis(0) }
    }

    fn is_stored(&self) -> bool {
        self.references != [0; GROUPS_MAX]
    }

    fn is_empty(&self) -> bool {
        !self.is_stored() && !self.is_speculated()
    }

    fn is_speculated(&self) -> bool {
        self.speculated_until > Millis(0)
    }

    /// The groups that have the block; all of them where it is held speculatively.
    pub(super) fn groups(&self) -> GroupMask {
        if self.is_speculated() {
            return GroupMask::ALL;
        }
        GroupMask::of(self.references)
    }
}

// === impl Holders ===

impl Holders {
    fn as_slice(&self) -> &[Holder] {
        match self {
            Self::One(holder) => std::slice::from_ref(holder),
            Self::Many(holders) => holders,
        }
    }

    fn get(&self, stream: StreamId) -> Option<&Holder> {
        let holders = self.as_slice();
        let at = holders.binary_search_by_key(&stream, |holder| holder.stream).ok()?;
        holders.get(at)
    }

    fn get_or_insert(&mut self, stream: StreamId) -> &mut Holder {
        if let Self::One(only) = self
            && only.stream != stream
        {
            *self = Self::Many(vec![*only]);
        }
        match self {
            Self::One(only) => only,
            Self::Many(holders) => {
                let at = match holders.binary_search_by_key(&stream, |holder| holder.stream) {
                    Ok(at) => at,
                    Err(at) => {
                        holders.insert(at, Holder::new(stream));
                        at
                    }
                };
                #[expect(clippy::indexing_slicing, reason = "found or inserted at this place just above")]
                &mut holders[at]
            }
        }
    }

    /// Whether nobody is left.
    fn remove(&mut self, stream: StreamId) -> bool {
        match self {
            Self::One(_) => true,
            Self::Many(holders) => {
                holders.retain(|holder| holder.stream != stream);
                if let [only] = holders.as_slice() {
                    *self = Self::One(*only);
                    return false;
                }
                holders.is_empty()
            }
        }
    }
}

// === impl KeyAsHash ===

impl Hasher for KeyAsHash {
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
