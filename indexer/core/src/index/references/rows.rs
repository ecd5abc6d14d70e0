//! A table of engine hashes in which each of them costs one line of the cache, most of the time.
//!
//! A hash has a line that is its home, and where that is full, the next one that is not. Lines lie in the order of the
//! hashes that they are home to, so that a table of another size is filled from the beginning to the end. What is taken
//! out of a full line is filled by a row behind it that may go there, so no marks are left that would make probes longer,
//! and churn takes no memory. Tables grow by half: what is left free is between a fifth and about a half.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use crate::event::EngineHash;

use super::super::place::SHRINK_BELOW;
use super::Referent;

#[derive(Debug)]
pub(super) struct Rows {
    /// The last one is never full. Empty until something is held.
    lines: Vec<Line>,
    /// Lines that are home to some hash: all but the last few.
    homes: usize,
    taken: usize,
    /// Random, so that nobody can choose hashes that gather in one place.
    seeds: [u64; 2],
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line([Row; WIDTH]);

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    hash: EngineHash,
    /// Without copies: the row is vacant, and zero.
    referent: Referent,
}

/// Where a row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::index) struct At {
    line: usize,
    row: usize,
}

/// Rows of a line.
const WIDTH: usize = 4;

const _: () = assert!(size_of::<Line>() == 64);

/// Lines of the smallest table.
const HOMES_MIN: usize = 2;

/// Lines beyond the last home, for what finds its own full.
const BEYOND: usize = 16;

/// Most rows taken of those in homes, in sixteenths.
const FULL: usize = 13;

// === impl Rows ===

impl Rows {
    /// With room for so many.
    pub(super) fn with_capacity(rows: usize) -> Self {
        let mut table = Self::default();
        if rows > 0 {
            table.resize((rows * 16).div_ceil(WIDTH * FULL).max(HOMES_MIN));
        }
        table
    }

    pub(super) fn len(&self) -> usize {
        self.taken
    }

    /// Hashes that there is room for before memory is taken.
    pub(super) fn capacity(&self) -> usize {
        self.homes * WIDTH * FULL / 16
    }

    #[inline]
    pub(super) fn get(&self, hash: EngineHash) -> Option<&Referent> {
        let at = self.find(hash).ok()?;
        self.lines.get(at.line)?.0.get(at.row).map(|row| &row.referent)
    }

    /// What a row has that was [found](Self::find).
    #[inline]
    pub(super) fn at_mut(&mut self, at: At) -> Option<&mut Referent> {
        self.row_mut(at).map(|row| &mut row.referent)
    }

    /// Something of the hash's home, which brings that into the cache.
    #[inline]
    pub(super) fn touch(&self, hash: EngineHash) -> u32 {
        self.lines
            .get(self.home(hash))
            .map_or(0, |line| line.0.as_slice().first().map_or(0, |row| row.referent.chain))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EngineHash, &Referent)> {
        let taken = self.lines.iter().flat_map(|line| &line.0).filter(|row| !row.is_vacant());
        taken.map(|row| (row.hash, &row.referent))
    }

    /// Where the hash is, or where it would be put.
    #[inline]
    pub(super) fn find(&self, hash: EngineHash) -> Result<At, At> {
        let home = self.home(hash);
        let mut line = home;
        for Line(rows) in self.lines.get(home..).unwrap_or_default() {
            if let Some(row) = rows.iter().position(|row| row.hash == hash && !row.is_vacant()) {
                return Ok(At { line, row });
            }
            if let Some(row) = rows.iter().position(Row::is_vacant) {
                return Err(At { line, row });
            }
            line += 1;
        }
        Err(At { line, row: 0 })
    }

    /// Where the hash is, which was at `at` before others were put in.
    #[inline]
    pub(super) fn find_again(&self, hash: EngineHash, at: At) -> Option<At> {
        let row = self.lines.get(at.line).and_then(|line| line.0.get(at.row));
        let is_there = row.is_some_and(|row| row.hash == hash && !row.is_vacant());
        if is_there { Some(at) } else { self.find(hash).ok() }
    }

    /// Puts a hash where it was [not found](Self::find). Returns where it is.
    #[inline]
    pub(super) fn insert(&mut self, at: At, hash: EngineHash, referent: Referent) -> At {
        let mut at = at;
        while self.taken >= self.capacity() || at.line + 1 >= self.lines.len() {
            self.resize((self.homes + self.homes.div_ceil(2)).max(HOMES_MIN));
            at = self.find(hash).unwrap_or_else(|at| at);
        }
        self.set(at, Row { hash, referent });
        self.taken += 1;
        at
    }

    /// Takes out the row where a hash was [found](Self::find).
    pub(super) fn remove(&mut self, at: At) {
        let mut hole = at;
        // Nothing went past a line that is not full.
        let mut line = if self.is_full(at.line) { at.line + 1 } else { self.lines.len() };
        while let Some(Line(rows)) = self.lines.get(line) {
            let may_go = |row: &Row| !row.is_vacant() && self.home(row.hash) <= hole.line;
            let (mover, is_full) = (rows.iter().position(may_go), self.is_full(line));
            if let Some(row) = mover
                && let Some(moved) = rows.get(row).copied()
            {
                self.set(hole, moved);
                hole = At { line, row };
            }
            line = if is_full { line + 1 } else { self.lines.len() };
        }
        self.set(hole, Row::default());
        self.taken -= 1;
        if self.taken < self.homes * WIDTH / SHRINK_BELOW {
            self.resize((self.taken * 2 / WIDTH).max(HOMES_MIN));
        }
    }

    fn is_full(&self, line: usize) -> bool {
        self.lines.get(line).is_some_and(|line| !line.0.iter().any(Row::is_vacant))
    }

    #[inline]
    fn row_mut(&mut self, at: At) -> Option<&mut Row> {
        self.lines.get_mut(at.line)?.0.get_mut(at.row)
    }

    #[inline]
    fn set(&mut self, at: At, row: Row) {
        if let Some(place) = self.row_mut(at) {
            *place = row;
        }
    }

    /// From a hash to a line, so that the order of what hashes are mixed to is that of their homes, however many there are.
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
        let old = std::mem::take(&mut self.lines);
        self.homes = homes;
        loop {
            self.lines = vec![Line::default(); self.homes + BEYOND];
            if self.fill(&old) {
                return;
            }
            self.homes += self.homes.div_ceil(2);
        }
    }

    fn fill(&mut self, old: &[Line]) -> bool {
        for row in old.iter().flat_map(|line| &line.0).filter(|row| !row.is_vacant()) {
            let at = self.find(row.hash).unwrap_or_else(|at| at);
            if at.line + 1 >= self.lines.len() {
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
        Self { lines: Vec::new(), homes: 0, taken: 0, seeds: [random.hash_one(0), random.hash_one(1) | 1] }
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
