//! A look at the home of a hash some time before the hash is needed: the two are apart, so that the first can be done while
//! something else is waited for.

use super::{At, Chunk, EngineHash, Rows, TAGS, TAKEN, byte_of};

/// What the home of a hash showed.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super::super) struct Glance {
    /// Homes of the table then.
    homes: usize,
    /// In the home: a row with the hash's tag, or if there is none and no row went past, one that is vacant. Beyond its rows
    /// where there is neither.
    at: At,
}

impl Rows {
    /// Looks at the home of a hash. Without a branch, for it would often be guessed wrongly.
    #[inline]
    pub(in super::super) fn glance(&self, hash: EngineHash) -> Glance {
        let at = self.home(hash);
        let row = self.chunks.get(at.home).map_or(usize::MAX, |chunk| chunk.telling(at.tag));
        Glance { homes: self.homes, at: At { row, ..at } }
    }

    /// [`find`](Self::find), where since the glance no row was taken out.
    #[inline(always)]
    pub(in super::super) fn find_glanced(&self, hash: EngineHash, glance: &Glance) -> Result<At, At> {
        let at = glance.at;
        if glance.homes == self.homes
            && let Some(chunk) = self.chunks.get(at.chunk)
            && let Some(tag) = chunk.tags().get(at.row)
        {
            if *tag == 0 {
                // It was vacant, and had the hash been put anywhere since, then here.
                return Err(at);
            }
            if self.is_at(hash, at) {
                return Ok(at);
            }
        }
        self.find(hash)
    }

    /// [`find`](Self::find), for a hash that is held, whatever became of others since the glance.
    #[inline(always)]
    pub(in super::super) fn find_held(&self, hash: EngineHash, glance: &Glance) -> Option<At> {
        let at = glance.at;
        let tag = self.chunks.get(at.chunk).and_then(|chunk| chunk.tags().get(at.row));
        let is_there = glance.homes == self.homes
            && tag.is_some_and(|tag| usize::from(*tag) == at.tag)
            && self.is_at(hash, at);
        if is_there { Some(at) } else { self.find(hash).ok() }
    }

    /// Brings the row of a glance into the cache. Returns something of it, to be used by the caller.
    #[inline]
    pub(in super::super) fn touch_row(&self, glance: &Glance) -> u64 {
        self.row(glance.at).map_or(0, |row| row.hash.0)
    }
}

impl Chunk {
    /// The first row with this tag, if there is none and nothing went past, the first that is vacant; else a number that no
    /// row has.
    #[inline]
    fn telling(&self, tag: usize) -> usize {
        let alike = self.alike(tag);
        let vacant = if self.passed() == 0 { !self.word() & TAKEN & TAGS } else { 0 };
        byte_of(if alike == 0 { vacant } else { alike }).unwrap_or(usize::MAX)
    }
}
