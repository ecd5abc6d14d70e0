//! A table of engine hashes. Most of what is asked of it is whether a hash is new, and nearly always it is: so before the
//! rows of a chunk there is a byte of each, its tag, and a row is read only where the tag is that of the hash. Tags and
//! rows lie side by side in four lines of the cache, so that a hash is in one page of memory.
//!
//! A hash has a chunk that is its home, and where that is full, the next one with room; each chunk
//! counts what went past it, so that a search ends where nothing did. Taking a row out therefore moves nothing and leaves
//! no mark, and churn takes no memory. Chunks lie in the order of the hashes that they are home to, so that a table of
//! another size is filled from the beginning to the end. Tables grow by half.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use crate::event::EngineHash;

use super::super::place::SHRINK_BELOW;
use super::Referent;

mod glance;

pub(in super::super) use glance::Glance;

#[derive(Debug)]
pub(super) struct Rows {
    /// Empty until something is held.
    chunks: Vec<Chunk>,
    /// Chunks that are home to some hash: all but the last few.
    homes: usize,
    taken: usize,
    /// Random, so that nobody can choose hashes that gather in one place.
    seeds: [u64; 2],
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Chunk {
    /// A tag per row, 0 where that is vacant, and in the last byte how many rows went past: at its largest it is not exact
    /// any more, and stays.
    tags: [u8; WIDTH + 1],
    rows: [Row; WIDTH],
}

const _: () = assert!(size_of::<Chunk>() == 4 * 64);

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    hash: EngineHash,
    referent: Referent,
}

/// Where a row is, or would be put: the end of the search for a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct At {
    chunk: usize,
    row: usize,
    /// Where the search began.
    home: usize,
    /// What the hash is known by among the tags. A word like the others: read as one after it was written as a byte, it would
    /// wait for all writes before it.
    tag: usize,
}

/// Rows of a chunk.
const WIDTH: usize = 15;

/// Chunks of the smallest table.
const HOMES_MIN: usize = 1;

/// Chunks beyond the last home, for what finds its own full.
const BEYOND: usize = 4;

/// Most rows taken of those in homes, in eighths.
const FULL: usize = 7;

/// In each byte the highest bit, which the tag of a taken row has.
const TAKEN: u128 = 0x80 * EACH;
const EACH: u128 = 0x0101_0101_0101_0101_0101_0101_0101_0101;
/// The bytes that are tags.
const TAGS: u128 = u128::MAX >> 8;

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
        self.homes * WIDTH * FULL / 8
    }

    #[inline]
    pub(super) fn get(&self, hash: EngineHash) -> Option<&Referent> {
        let at = self.find(hash).ok()?;
        self.row(at).map(|row| &row.referent)
    }

    /// What a row has that was [found](Self::find).
    #[inline]
    pub(super) fn at_mut(&mut self, at: At) -> Option<&mut Referent> {
        self.chunks.get_mut(at.chunk)?.rows.get_mut(at.row).map(|row| &mut row.referent)
    }

    #[inline]
    fn row(&self, at: At) -> Option<&Row> {
        self.chunks.get(at.chunk)?.rows.get(at.row)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EngineHash, &Referent)> {
        self.chunks.iter().flat_map(Chunk::taken).map(|row| (row.hash, &row.referent))
    }

    /// Brings the tags of the hash's home into the cache. Returns something of them, to be used by the caller.
    #[inline]
    pub(super) fn touch(&self, hash: EngineHash) -> u8 {
        self.chunks.get(self.home(hash).home).map_or(0, Chunk::passed)
    }

    /// Where the hash is, or where it would be put. Always inlined, so that what it returns does not go through memory.
    #[inline(always)]
    pub(super) fn find(&self, hash: EngineHash) -> Result<At, At> {
        let at = self.home(hash);
        let Some(tags) = self.chunks.get(at.home) else { return Err(at) };
        for row in tags.with_tag(at.tag) {
            let at = At { row, ..at };
            if self.is_at(hash, at) {
                return Ok(at);
            }
        }
        match tags.vacant() {
            Some(row) if tags.passed() == 0 => Err(At { row, ..at }),
            vacant => self.find_behind(hash, at, vacant),
        }
    }

    /// The same where the hash is not in its home. `vacant`: a row of that.
    #[inline(never)]
    fn find_behind(&self, hash: EngineHash, home: At, vacant: Option<usize>) -> Result<At, At> {
        let mut vacant = vacant.map(|row| At { row, ..home });
        let mut may_be_behind = self.chunks.get(home.home).is_some_and(|tags| tags.passed() > 0);
        let mut at = At { chunk: home.home + 1, ..home };
        while (may_be_behind || vacant.is_none())
            && let Some(tags) = self.chunks.get(at.chunk)
        {
            if may_be_behind
                && let Some(row) = tags.with_tag(at.tag).find(|row| self.is_at(hash, At { row: *row, ..at }))
            {
                return Ok(At { row, ..at });
            }
            may_be_behind &= tags.passed() > 0;
            vacant = vacant.or_else(|| tags.vacant().map(|row| At { row, ..at }));
            at.chunk += 1;
        }
        Err(vacant.unwrap_or(at))
    }

    #[inline]
    fn is_at(&self, hash: EngineHash, at: At) -> bool {
        self.row(at).is_some_and(|row| row.hash == hash)
    }

    /// Puts a hash where it was [not found](Self::find).
    #[inline]
    pub(super) fn insert(&mut self, at: At, hash: EngineHash, referent: Referent) {
        let mut at = at;
        while self.taken >= self.capacity() || at.chunk >= self.chunks.len() {
            self.resize((self.homes + self.homes.div_ceil(2)).max(HOMES_MIN));
            at = self.find(hash).unwrap_or_else(|at| at);
        }
        self.put(at, Row { hash, referent });
        self.taken += 1;
    }

    /// Takes out the row where a hash was [found](Self::find).
    #[inline]
    pub(super) fn remove(&mut self, at: At) {
        self.chunks.get_mut(at.home..at.chunk).unwrap_or_default().iter_mut().for_each(Chunk::unpass);
        if let Some(chunk) = self.chunks.get_mut(at.chunk) {
            chunk.set_tag(at.row, 0);
        }
        self.taken -= 1;
        if self.taken < self.homes * WIDTH / SHRINK_BELOW && self.homes > HOMES_MIN {
            self.resize((self.taken * 2 / WIDTH).max(HOMES_MIN));
        }
    }

    #[inline]
    fn put(&mut self, at: At, row: Row) {
        self.chunks.get_mut(at.home..at.chunk).unwrap_or_default().iter_mut().for_each(Chunk::pass);
        if let Some(chunk) = self.chunks.get_mut(at.chunk) {
            chunk.set_tag(at.row, u8::try_from(at.tag).unwrap_or(u8::MAX));
            if let Some(place) = chunk.rows.get_mut(at.row) {
                *place = row;
            }
        }
    }

    /// Homes lie in the order of what hashes are mixed to, however many there are.
    #[inline]
    fn home(&self, hash: EngineHash) -> At {
        let [first, second] = self.seeds;
        let [low, high] = halves(u128::from(hash.0 ^ first) * u128::from(second));
        let mixed = low ^ high;
        let homes = u64::try_from(self.homes).unwrap_or(u64::MAX);
        let [_, home] = halves(u128::from(mixed) * u128::from(homes));
        let [tag, ..] = mixed.to_le_bytes();
        let home = usize::try_from(home).unwrap_or(usize::MAX);
        At { chunk: home, row: 0, home, tag: usize::from(tag | 0x80) }
    }

    /// The same rows in a table of another size; a larger one where they gather at the end of it.
    #[cold]
    fn resize(&mut self, homes: usize) {
        let chunks = std::mem::take(&mut self.chunks);
        self.homes = homes;
        while !self.fill(chunks.iter().flat_map(Chunk::taken)) {
            self.homes += self.homes.div_ceil(2);
        }
    }

    /// Puts rows into a table that has none, of which no two have the same hash. They come in the order of their homes, or
    /// nearly: so chunks are made as they are reached, when they are written to anyway.
    fn fill<'r>(&mut self, mut rows: impl Iterator<Item = &'r Row>) -> bool {
        let all = self.homes + BEYOND;
        self.chunks = Vec::with_capacity(all);
        let fit = rows.all(|row| {
            let mut at = self.home(row.hash);
            loop {
                while self.chunks.len() <= at.chunk {
                    if at.chunk >= all {
                        return false;
                    }
                    self.chunks.push(Chunk::default());
                }
                match self.chunks.get(at.chunk).and_then(Chunk::vacant) {
                    Some(vacant) => {
                        self.put(At { row: vacant, ..at }, *row);
                        return true;
                    }
                    None => at.chunk += 1,
                }
            }
        });
        self.chunks.resize(all, Chunk::default());
        fit
    }
}

impl Default for Rows {
    fn default() -> Self {
        let random = DefaultHashBuilder::default();
        let seeds = [random.hash_one(0), random.hash_one(1) | 1];
        Self { chunks: Vec::new(), homes: 0, taken: 0, seeds }
    }
}

// === impl Chunk ===

impl Chunk {
    fn tags(&self) -> &[u8] {
        self.tags.split_last().map_or(&[], |(_, tags)| tags)
    }

    /// Rows that are taken.
    fn taken(&self) -> impl Iterator<Item = &Row> {
        self.tags().iter().zip(&self.rows).filter(|(tag, _)| **tag != 0).map(|(_, row)| row)
    }

    #[inline]
    fn word(&self) -> u128 {
        u128::from_le_bytes(self.tags)
    }

    /// A bit for each row with this tag, and perhaps for others.
    #[inline]
    fn alike(&self, tag: usize) -> u128 {
        let unlike = self.word() ^ spread(tag);
        // Bytes that are zero; a borrow may add some above such a one.
        unlike.wrapping_sub(EACH) & !unlike & TAKEN & TAGS
    }

    /// Rows with this tag, and perhaps others.
    #[inline]
    fn with_tag(&self, tag: usize) -> impl Iterator<Item = usize> + use<> {
        let mut alike = self.alike(tag);
        std::iter::from_fn(move || {
            let row = byte_of(alike)?;
            alike &= alike - 1;
            Some(row)
        })
    }

    /// The first row that is not taken.
    #[inline]
    fn vacant(&self) -> Option<usize> {
        byte_of(!self.word() & TAKEN & TAGS)
    }

    fn set_tag(&mut self, row: usize, tag: u8) {
        if let Some(place) = self.tags.get_mut(row) {
            *place = tag;
        }
    }

    fn passed(&self) -> u8 {
        let [.., passed] = self.tags;
        passed
    }

    fn pass(&mut self) {
        let [.., passed] = &mut self.tags;
        *passed = passed.saturating_add(1);
    }

    fn unpass(&mut self) {
        let [.., passed] = &mut self.tags;
        if *passed < u8::MAX {
            *passed = passed.saturating_sub(1);
        }
    }
}

/// A byte in each byte.
#[inline]
fn spread(byte: usize) -> u128 {
    let half = u64::try_from(byte).unwrap_or_default().wrapping_mul(0x0101_0101_0101_0101);
    u128::from(half) << 64 | u128::from(half)
}

/// The lowest byte with a bit.
#[inline]
fn byte_of(bits: u128) -> Option<usize> {
    if bits == 0 { None } else { usize::try_from(bits.trailing_zeros() / u8::BITS).ok() }
}

fn halves(number: u128) -> [u64; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the number")]
    [number as u64, (number >> 64) as u64]
}

#[cfg(test)]
mod tests;
