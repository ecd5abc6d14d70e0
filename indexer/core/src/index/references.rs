//! The engine hashes of one pool of a stream, and which block each of them stands for.

use std::hash::Hash;
use std::hint::black_box;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::event::EngineHash;

use super::place::{ChainId, GROUPS_MAX, PerGroup, Place, SHRINK_BELOW};

mod rows;

pub(super) use rows::Glance;
use rows::{At, Rows};

#[derive(Debug, Default)]
pub(super) struct References {
    hashes: Rows,
    /// Hashes told of before the place of their blocks was: only the copies per group are known.
    unplaced: HashMap<EngineHash, PerGroup>,
    /// Copies beyond the first of a block in a group. Engines do not merge equal blocks, but rarely have any.
    spare: HashMap<Place, PerGroup>,
    /// Distinct blocks held.
    pub(super) blocks: usize,
}

/// What an engine hash stands for: the block's place, and the copies counted under this hash in all groups. One word:
/// there is one of them per held block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Referent {
    chain: u32,
    /// The place in the chain, above; the copies, in the lowest eight bits.
    at_and_copies: u32,
}

/// Most copies counted of one engine hash. More only come from clients that make the engine announce blocks again which
/// it never stored twice; with the cap, what that leaves behind is bounded.
pub(super) const COPIES_MAX: u8 = u8::MAX;

/// There is no room for a block, or its hash stands for another one.
pub(super) struct Refused;

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

// === impl References ===

impl References {
    /// With room for so many hashes.
    pub(super) fn with_capacity(hashes: usize) -> Self {
        Self { hashes: Rows::with_capacity(hashes), ..Self::default() }
    }

    /// Puts back a hash with its copies; `false`: it is here already.
    pub(super) fn restore(&mut self, hash: EngineHash, place: Place, copies: u8) -> bool {
        let Err(at) = self.hashes.find(hash) else { return false };
        self.hashes.insert(at, hash, Referent::with(place, copies));
        true
    }

    pub(super) fn restore_unplaced(&mut self, hash: EngineHash, copies: PerGroup) {
        self.unplaced.insert(hash, copies);
    }

    pub(super) fn restore_spare(&mut self, place: Place, copies: PerGroup) {
        self.spare.insert(place, copies);
    }

    /// Engine hashes that are held at least once.
    pub(super) fn len(&self) -> usize {
        self.hashes.len() + self.unplaced.len()
    }

    /// Hashes that there is room for before memory is taken.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.hashes.capacity() + self.unplaced.capacity()
    }

    /// The block named by an event before; `None` where it is not known.
    pub(super) fn place(&self, hash: EngineHash) -> Option<Place> {
        self.hashes.get(hash).map(Referent::place)
    }

    /// Brings what tells whether these hashes are known into the cache, all at once: looked up one by one between other work,
    /// each would be waited for by itself, which is most of what an event costs. Without a branch, so that none is guessed
    /// wrongly, after which what was on its way would be asked for again.
    ///
    /// Where new hashes would be put is not looked at: it is only written to, which nobody waits for.
    pub(super) fn fetch(&self, hashes: &[EngineHash]) {
        black_box(hashes.iter().fold(0, |sum, hash| sum ^ self.hashes.touch(*hash)));
    }

    /// The same of hashes that are known, with what they stand for.
    pub(super) fn fetch_known(&self, hashes: &[EngineHash]) {
        self.fetch(hashes);
        let touch = |hash: &EngineHash| self.hashes.touch_row(&self.hashes.glance(*hash));
        black_box(hashes.iter().fold(0, |sum, hash| sum ^ touch(hash)));
    }

    /// The same, and what showed of them, to be [taken](Self::take) soon.
    pub(super) fn look_for(&self, hashes: &[EngineHash], glances: &mut Vec<Glance>) {
        self.fetch(hashes);
        glances.clear();
        glances.extend(hashes.iter().map(|hash| self.hashes.glance(*hash)));
        black_box(glances.iter().fold(0, |sum, glance| sum ^ self.hashes.touch_row(glance)));
    }

    /// What shows where the hash would be, to be counted there [soon](Self::refer_glanced).
    #[inline]
    pub(super) fn glance(&self, hash: EngineHash) -> Glance {
        self.hashes.glance(hash)
    }

    /// Every engine hash with its copies in all groups, in no order.
    pub(super) fn copies(&self) -> impl Iterator<Item = (EngineHash, u32)> {
        let placed = self.hashes.iter().map(|(hash, referent)| (hash, referent.copies()));
        let sum = |groups: &PerGroup| groups.iter().map(|copies| u32::from(*copies)).sum();
        placed.chain(self.unplaced.iter().map(move |(hash, groups)| (*hash, sum(groups))))
    }

    /// Every engine hash with a place, and its copies, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (EngineHash, Place, u8)> {
        self.hashes.iter().map(|(hash, referent)| {
            (hash, referent.place(), u8::try_from(referent.copies()).unwrap_or(COPIES_MAX))
        })
    }

    /// Hashes without a place, with their copies per group, in no order.
    pub(super) fn unplaced(&self) -> impl Iterator<Item = (EngineHash, PerGroup)> {
        self.unplaced.iter().map(|(hash, copies)| (*hash, *copies))
    }

    /// Copies beyond the first, in no order.
    pub(super) fn spare(&self) -> impl Iterator<Item = (Place, PerGroup)> {
        self.spare.iter().map(|(place, copies)| (*place, *copies))
    }

    /// Chains that the stream's events named; may name one more than once.
    pub(super) fn chains(&self) -> impl Iterator<Item = ChainId> {
        self.hashes.iter().map(|(_, referent)| ChainId(referent.chain))
    }

    pub(super) fn has_unplaced(&self) -> bool {
        !self.unplaced.is_empty()
    }

    pub(super) fn is_unplaced(&self, hash: EngineHash) -> bool {
        self.unplaced.contains_key(&hash)
    }

    /// Counts a copy under the hash. `known`: the place of the block that it stands for, if the block has one; else
    /// `make` gives it one, unless there is no room for it.
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
        match self.hashes.find(hash) {
            Ok(at) => self.refer_again(at, known),
            Err(_) if !has_room => Referred::Full,
            Err(at) => {
                let place = known.unwrap_or_else(make);
                self.hashes.insert(at, hash, Referent::new(place));
                Referred::Counted(place)
            }
        }
    }

    /// Counts a copy under a hash for which there is room, and of a block that has its place. `glance`: of the hash, since
    /// when no other was taken out.
    #[inline(always)]
    pub(super) fn refer_glanced(&mut self, hash: EngineHash, glance: &Glance, place: Place) -> Referred {
        match self.hashes.find_glanced(hash, glance) {
            Ok(at) => self.refer_again(at, Some(place)),
            Err(at) => {
                self.hashes.insert(at, hash, Referent::new(place));
                Referred::Counted(place)
            }
        }
    }

    /// Counts a copy more under a hash that was found.
    #[inline]
    fn refer_again(&mut self, at: At, known: Option<Place>) -> Referred {
        let Some(referent) = self.hashes.at_mut(at) else { return Referred::Full };
        let place = referent.place();
        if Some(place) != known {
            return Referred::Conflict;
        }
        if referent.count() { Referred::Counted(place) } else { Referred::TooMany(place) }
    }

    /// Takes one copy off the hash, and the hash with its last one, and a spare one off its block. Returns the block's place,
    /// and whether there was a spare one; `None`: the hash is not known.
    #[inline]
    pub(super) fn take(&mut self, hash: EngineHash, glance: &Glance, group: usize) -> Option<(Place, bool)> {
        let at = self.hashes.find_held(hash, glance)?;
        let referent = self.hashes.at_mut(at)?;
        let place = referent.place();
        if referent.uncount() {
            self.hashes.remove(at);
        }
        Some((place, self.take_spare(place, group)))
    }

    /// Counts a copy again that was taken off too early.
    #[cold]
    pub(super) fn recount(&mut self, hash: EngineHash, place: Place) {
        self.refer(hash, Some(place), true, || place);
    }

    /// Takes one copy off the hash, and the hash with its last one. Returns whether that was the last one.
    pub(super) fn unrefer(&mut self, hash: EngineHash) -> bool {
        let Ok(at) = self.hashes.find(hash) else { return true };
        let was_last = self.hashes.at_mut(at).is_none_or(Referent::uncount);
        if was_last {
            self.hashes.remove(at);
        }
        was_last
    }

    /// Counts a copy in a group of a hash whose block is not known yet.
    pub(super) fn note_unplaced(&mut self, hash: EngineHash, group: usize) {
        if let Some(copies) = self.unplaced.entry(hash).or_default().get_mut(group) {
            *copies = copies.saturating_add(1);
        }
    }

    /// The copies counted while the block was not known, if there were any.
    pub(super) fn take_unplaced(&mut self, hash: EngineHash) -> Option<PerGroup> {
        let copies = self.unplaced.remove(&hash)?;
        shrink(&mut self.unplaced);
        Some(copies)
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
            shrink(&mut self.unplaced);
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
            shrink(&mut self.spare);
        }
        true
    }
}

/// Gives memory back when little of it is used.
fn shrink<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    if table.len() < table.capacity() / SHRINK_BELOW {
        table.shrink_to(table.len() * 2);
    }
}

// === impl Referent ===

impl Referent {
    const COPIES_BITS: u32 = u8::BITS;

    fn new(place: Place) -> Self {
        Self::with(place, 1)
    }

    fn with(place: Place, copies: u8) -> Self {
        Self { chain: place.chain.0, at_and_copies: place.at << Self::COPIES_BITS | u32::from(copies) }
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
