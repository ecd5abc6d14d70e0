//! Where blocks have their place: chains of keys, found by the key of their first block.
//!
//! A chain is a stretch of blocks that were told of one after the other. Keys are chained hashes, so whoever finds the
//! last key of a stretch in a prompt has found all of it: a lookup probes the map once per chain and compares a few keys.
//! Where two prompts part, the later one begins a chain of its own behind the block they share; nothing is moved, so a
//! block's [`Place`] stays as it is for as long as anyone holds the block.
//!
//! Each key has at most one place: before a key gets one, the chain it would go on in and the map are asked.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hasher;
use std::ops::Range;

use hashbrown::HashMap;

use crate::key::BlockKey;
use crate::stream::Millis;

use super::groups::GroupMask;
use super::hold::Hold;
use super::holders::Holders;
use super::place::{CHAIN_BLOCKS_MAX, ChainId, Place, SHRINK_BELOW, Slot};

mod heads;
mod least;
mod pages;
mod runs;

use heads::Heads;
use least::Least;
use pages::Pages;
pub(super) use runs::{Entered, Holder, Keys, Sight};

#[derive(Debug)]
pub(super) struct Chains {
    /// The last of them holds something.
    chains: Pages,
    /// Chains that hold nothing, to be used again, the lowest first, so that those in use gather at the beginning. Some
    /// that are in use or beyond the end stand here too, and are passed over.
    free: BinaryHeap<Reverse<u32>>,
    heads: Heads,
    /// Chains ever begun.
    begun: u64,
    /// Keys in all chains.
    keys: usize,
    keys_max: usize,
}

/// A stretch of blocks, and who holds which of them. In one line of the cache: what a lookup needs of a chain that the
/// prompt has all of and that one stream holds.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Chain {
    keys: Vec<BlockKey>,
    /// Changed through [`Chain::holders_mut`] only.
    holders: Holders,
    /// Of `keys`; means nothing where there is none.
    last: BlockKey,
    /// Where the last chain that parted from this one did: the place to look first.
    parting: u32,
    /// Of `holders`.
    least: Least,
}

const _: () = assert!(size_of::<Chain>() == 64);

/// A block key is uniform and secret already: it is its own hash.
#[derive(Default)]
pub(super) struct KeyAsHash(u64);

// === impl Chains ===

impl Chains {
    /// Without a block, and with room for so many: see [`blocks`](Self::blocks).
    pub(super) fn new(keys_max: usize) -> Self {
        Self {
            chains: Pages::default(),
            free: BinaryHeap::new(),
            heads: Heads::default(),
            begun: 0,
            keys: 0,
            keys_max,
        }
    }

    /// Gives the blocks of one chain of an image their places, wherever their keys have none yet. `known`: every key that
    /// has one, and where. Returns where each of them is.
    pub(super) fn put(&mut self, keys: &[u64], known: &mut HashMap<BlockKey, Place>) -> Vec<Place> {
        let mut after = None;
        let mut places = Vec::with_capacity(keys.len());
        for (more, key) in (0..keys.len()).rev().zip(keys.iter().copied().map(BlockKey)) {
            let place = *known.entry(key).or_insert_with(|| self.place(after, key, more));
            after = Some(place);
            places.push(place);
        }
        places
    }

    /// Forgets what nobody holds of these chains.
    pub(super) fn trim_all(&mut self, ids: &[ChainId]) {
        for id in ids {
            if self.get(*id).is_some_and(|chain| !chain.is_unused()) {
                self.trim(*id);
            }
        }
    }

    /// Blocks that have a place: all that someone holds or is expected to, and what lies before those in their chains.
    pub(super) fn blocks(&self) -> usize {
        self.keys
    }

    /// One more block may get a place.
    pub(super) fn has_room(&self) -> bool {
        self.keys < self.keys_max
    }

    pub(super) fn get(&self, id: ChainId) -> Option<&Chain> {
        self.chains.get(index(id.0))
    }

    /// Whether a chain begins with this key.
    #[inline]
    pub(super) fn begins(&self, key: BlockKey) -> bool {
        self.heads.contains(key)
    }

    /// The chain that begins with this key.
    pub(super) fn beginning(&self, key: BlockKey) -> Option<&Chain> {
        self.heads.get(key).and_then(|id| self.get(id))
    }

    pub(super) fn key(&self, place: Place) -> Option<BlockKey> {
        self.get(place.chain)?.keys.get(index(place.at)).copied()
    }

    /// The place of the block `key` that comes after the one at `after` (`None`: it begins a prompt), if it has one.
    pub(super) fn find(&self, after: Option<Place>, key: BlockKey) -> Option<Place> {
        let next = after.map(|after| Place { at: after.at + 1, ..after });
        if let Some(next) = next
            && self.key(next) == Some(key)
        {
            return Some(next);
        }
        self.heads.get(key).map(|chain| Place { chain, at: 0 })
    }

    /// Gives the block a place where [`find`](Self::find) found none. `more`: how many blocks will follow it.
    pub(super) fn place(&mut self, after: Option<Place>, key: BlockKey, more: usize) -> Place {
        self.keys += 1;
        if let Some(after) = after
            && let Some(chain) = self.chains.get_mut(index(after.chain.0))
        {
            if chain.keys.len() == index(after.at) + 1 && after.at < CHAIN_BLOCKS_MAX {
                chain.extend(&[key], more);
                return Place { chain: after.chain, at: after.at + 1 };
            }
            chain.parting = after.at + 1;
        }
        let id = self.unused();
        if let Some(chain) = self.chains.get_mut(index(id.0)) {
            chain.extend(&[key], more);
        }
        self.begin(key, id);
        Place { chain: id, at: 0 }
    }

    /// Notes that a chain begins with this key.
    fn begin(&mut self, key: BlockKey, id: ChainId) {
        self.heads.insert(key, id);
        self.begun += 1;
    }

    /// A chain that holds nothing.
    fn unused(&mut self) -> ChainId {
        while let Some(Reverse(id)) = self.free.pop() {
            if self.chains.get(index(id)).is_some_and(Chain::is_unused) {
                return ChainId(id);
            }
        }
        ChainId(u32::try_from(self.chains.push(Chain::default())).unwrap_or(u32::MAX))
    }

    pub(super) fn hold(&self, chain: ChainId, slot: Slot) -> Option<&Hold> {
        self.get(chain)?.hold(slot)
    }

    /// Notes that the group has the block. Returns the groups that had it before.
    #[inline]
    pub(super) fn store(&mut self, place: Place, slot: Slot, group: usize) -> GroupMask {
        let Some(chain) = self.chains.get_mut(index(place.chain.0)) else { return GroupMask::default() };
        let hold = chain.holders_mut().get_or_insert(slot);
        let had = hold.stored(place.at);
        if !had.has(group) {
            hold.store(place.at, group);
        }
        had
    }

    /// Notes that the group no longer has the block. Returns the groups that still have it; `None`: it had none. What
    /// nobody holds any more is forgotten.
    pub(super) fn release(&mut self, place: Place, slot: Slot, group: usize) -> Option<GroupMask> {
        let release = |hold: &mut Hold| {
            let had = hold.stored(place.at);
            had.has(group).then(|| {
                hold.release(place.at, group);
                had.without(group)
            })
        };
        self.lessen(place.chain, slot, release).flatten()
    }

    /// Notes which blocks the stream is expected to hold; see [`Hold::expect`].
    pub(super) fn expect(&mut self, id: ChainId, slot: Slot, blocks: Range<u32>, until: Millis) -> u32 {
        let Some(chain) = self.chains.get_mut(index(id.0)) else { return 0 };
        chain.holders_mut().get_or_insert(slot).expect(blocks.start, blocks.end, until)
    }

    /// Ends what was expected until then or earlier; see [`Hold::expire`].
    pub(super) fn expire(&mut self, id: ChainId, slot: Slot, until: Millis) -> u32 {
        self.lessen(id, slot, |hold| hold.expire(until)).unwrap_or_default()
    }

    /// Changes a hold in a way that adds nothing to it. `None`: there is none.
    fn lessen<T>(&mut self, id: ChainId, slot: Slot, change: impl FnOnce(&mut Hold) -> T) -> Option<T> {
        let chain = self.chains.get_mut(index(id.0))?;
        let hold = chain.holders_mut().get_mut(slot)?;
        let before = hold.end();
        let result = change(hold);
        let after = hold.end();
        if hold.is_empty() {
            chain.holders_mut().remove(slot);
        }
        if after < before && index(before) == chain.keys.len() {
            self.trim(id);
        }
        Some(result)
    }

    /// Forgets what the stream holds of the chain.
    pub(super) fn drop_hold(&mut self, id: ChainId, slot: Slot) {
        let Some(chain) = self.chains.get_mut(index(id.0)) else { return };
        if chain.holders_mut().remove(slot) {
            self.trim(id);
        }
    }

    /// Forgets the blocks at the end of the chain that nobody holds, and the chain if none is left.
    fn trim(&mut self, id: ChainId) {
        let Some(chain) = self.chains.get_mut(index(id.0)) else { return };
        let length = chain.keys.len();
        let mut end = 0;
        for hold in chain.holders.as_slice() {
            end = end.max(index(hold.end()));
            if end >= length {
                return;
            }
        }
        self.keys -= length - end;
        if end > 0 {
            chain.truncate(end);
            return;
        }
        if let Some(head) = chain.keys.first() {
            self.heads.remove(*head);
        }
        *chain = Chain::default();
        self.free.push(Reverse(id.0));
        self.shrink();
    }

    /// Gives memory back when little of it is used.
    fn shrink(&mut self) {
        while self.chains.last().is_some_and(Chain::is_unused) {
            self.chains.pop();
        }
        if self.free.len() > self.chains.end() * 2 + SHRINK_BELOW {
            let mut free = std::mem::take(&mut self.free).into_vec();
            let end = self.chains.end();
            free.retain(|Reverse(id)| index(*id) < end);
            free.sort_unstable();
            free.dedup();
            free.shrink_to_fit();
            self.free = free.into();
        }
    }
}

// === impl Chain ===

impl Chain {
    #[inline]
    pub(super) fn holds(&self) -> &[Hold] {
        self.holders.as_slice()
    }

    pub(super) fn keys(&self) -> &[BlockKey] {
        &self.keys
    }

    fn is_unused(&self) -> bool {
        self.keys.is_empty()
    }

    #[inline]
    fn holders_mut(&mut self) -> &mut Holders {
        self.least.forget();
        &mut self.holders
    }

    /// Every holder has so many leading blocks at least, and there is no more to any hold than such; 0: not known.
    #[inline]
    pub(super) fn least(&self) -> u32 {
        self.least.get()
    }

    /// Finds that out, for the next ones who ask. Returns whether leading blocks are all there is to any hold.
    pub(super) fn note_least(&self) -> bool {
        self.least.note(self.holds())
    }

    pub(super) fn hold(&self, slot: Slot) -> Option<&Hold> {
        self.holders.get(slot)
    }

    /// How many of the prompt's blocks are the first ones of this chain.
    #[inline]
    pub(super) fn common(&self, prompt: &[BlockKey]) -> usize {
        let length = self.keys.len().min(prompt.len());
        let Some(end) = length.checked_sub(1) else { return 0 };
        let same = |at: usize| self.keys.get(at) == prompt.get(at);
        let has_all = if length == self.keys.len() { prompt.get(end) == Some(&self.last) } else { same(end) };
        if has_all {
            return length;
        }
        let parting = index(self.parting);
        if (1..length).contains(&parting) && same(parting - 1) && !same(parting) {
            return parting;
        }
        // Where the keys of one place are equal, so are all before it.
        let (mut equal, mut unequal) = (0, length - 1);
        while equal < unequal {
            let middle = equal + (unequal - equal) / 2;
            if same(middle) { equal = middle + 1 } else { unequal = middle }
        }
        equal
    }

    fn truncate(&mut self, length: usize) {
        self.keys.truncate(length);
        if self.keys.len() < self.keys.capacity() / 2 {
            self.keys.shrink_to_fit();
        }
        self.last = self.keys.last().copied().unwrap_or_default();
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

fn index(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
