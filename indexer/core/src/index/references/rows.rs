//! A table of engine hashes in which each of them costs one line of the cache: open addressing with linear probing.
//!
//! Rows lie in the order of their homes, about, so that a table of another size is filled from the beginning to the end.
//! A row that is taken out is filled by those behind it that may go there, so no marks are left that would make probes
//! longer, and churn takes no memory. Tables grow by half: what is left free is between a fifth and about a half.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use crate::event::EngineHash;

use super::super::place::SHRINK_BELOW;
use super::Referent;

#[derive(Debug)]
pub(super) struct Rows {
    /// The last one is never taken. Empty until something is held.
    rows: Vec<Row>,
    /// Rows that are home to some hash: all but the last few.
    homes: usize,
    taken: usize,
    /// Random, so that nobody can choose hashes that gather in one place.
    seeds: [u64; 2],
}

#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct Row {
    hash: EngineHash,
    /// Without copies: the row is vacant.
    referent: Referent,
}

const VACANT: Row = Row { hash: EngineHash(0), referent: Referent::NONE };

/// Rows of the smallest table.
const HOMES_MIN: usize = 8;

/// Rows beyond the last home, for those that find theirs taken.
const BEYOND: usize = 64;

/// Most homes taken, in sixteenths.
const FULL: usize = 13;

// === impl Rows ===

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.taken
    }

    /// Hashes that there is room for before memory is taken.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.homes * FULL / 16
    }

    #[inline]
    pub(super) fn get(&self, hash: EngineHash) -> Option<&Referent> {
        let at = self.find(hash).ok()?;
        self.rows.get(at).map(|row| &row.referent)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, hash: EngineHash) -> Option<&mut Referent> {
        let at = self.find(hash).ok()?;
        self.rows.get_mut(at).map(|row| &mut row.referent)
    }

    /// Something of the row where the search for a hash begins, which brings the row into the cache.
    #[inline]
    pub(super) fn touch(&self, hash: EngineHash) -> u32 {
        self.rows.get(self.home(hash)).map_or(0, |row| row.referent.chain)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EngineHash, &Referent)> {
        let taken = self.rows.iter().filter(|row| !row.is_vacant());
        taken.map(|row| (row.hash, &row.referent))
    }

    /// Where the hash is, or where it would be put.
    #[inline]
    pub(super) fn find(&self, hash: EngineHash) -> Result<usize, usize> {
        let home = self.home(hash);
        let mut at = home;
        for row in self.rows.get(home..).unwrap_or_default() {
            if row.is_vacant() {
                break;
            }
            if row.hash == hash {
                return Ok(at);
            }
            at += 1;
        }
        Err(at)
    }

    pub(super) fn at_mut(&mut self, at: usize) -> Option<&mut Referent> {
        self.rows.get_mut(at).map(|row| &mut row.referent)
    }

    /// Puts a hash where it was [not found](Self::find).
    #[inline]
    pub(super) fn insert(&mut self, at: usize, hash: EngineHash, referent: Referent) {
        let mut at = at;
        while self.taken >= self.homes * FULL / 16 || at + 1 >= self.rows.len() {
            self.resize((self.homes + self.homes / 2).max(HOMES_MIN));
            at = self.find(hash).unwrap_or_else(|at| at);
        }
        if let Some(row) = self.rows.get_mut(at) {
            *row = Row { hash, referent };
            self.taken += 1;
        }
    }

    /// Takes out the row where a hash was [found](Self::find).
    pub(super) fn remove(&mut self, at: usize) {
        let mut hole = at;
        let mut next = at + 1;
        while let Some(row) = self.rows.get(next).copied().filter(|row| !row.is_vacant()) {
            if self.home(row.hash) <= hole {
                self.set(hole, row);
                hole = next;
            }
            next += 1;
        }
        self.set(hole, VACANT);
        self.taken -= 1;
        if self.taken < self.homes / SHRINK_BELOW {
            self.resize((self.taken * 2).max(HOMES_MIN));
        }
    }

    fn set(&mut self, at: usize, row: Row) {
        if let Some(place) = self.rows.get_mut(at) {
            *place = row;
        }
    }

    /// From a hash to a row, so that the order of what they are mixed to stays that of the rows, whatever their number.
    #[inline]
    fn home(&self, hash: EngineHash) -> usize {
        let [first, second] = self.seeds;
        let [low, high] = halves(u128::from(hash.0 ^ first) * u128::from(second));
        let homes = u64::try_from(self.homes).unwrap_or(u64::MAX);
        let [_, home] = halves(u128::from(low ^ high) * u128::from(homes));
        usize::try_from(home).unwrap_or(usize::MAX)
    }

    /// The same rows in a table of another size; a larger one where they gather at the end of it.
    #[cold]
    fn resize(&mut self, homes: usize) {
        let old = std::mem::take(&mut self.rows);
        self.homes = homes;
        loop {
            self.rows = vec![VACANT; self.homes + BEYOND];
            if self.fill(&old) {
                return;
            }
            self.homes += self.homes / 2;
        }
    }

    fn fill(&mut self, old: &[Row]) -> bool {
        for row in old.iter().filter(|row| !row.is_vacant()) {
            let at = self.find(row.hash).unwrap_or_else(|at| at);
            if at + 1 >= self.rows.len() {
                return false;
            }
            self.set(at, *row);
        }
        true
    }
}

impl Default for Rows {
    fn default() -> Self {
        let random = DefaultHashBuilder::default();
        Self { rows: Vec::new(), homes: 0, taken: 0, seeds: [random.hash_one(0), random.hash_one(1) | 1] }
    }
}

// === impl Row ===

impl Row {
    #[inline]
    fn is_vacant(&self) -> bool {
        self.referent.copies() == 0
    }
}

fn halves(number: u128) -> [u64; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the number")]
    [number as u64, (number >> 64) as u64]
}

#[cfg(test)]
mod tests;
