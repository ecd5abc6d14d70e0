//! A list that is filled again and again.

use crate::stream::StreamId;

use super::Hit;

/// Keeps its places when it is emptied, so that they are written to once each time and not cleared before. A vector that
/// is pushed to also keeps its length in memory, so that each push waits for the one before.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    places: Vec<Hit>,
    /// How many of the places are taken.
    taken: usize,
}

// === impl List ===

impl List {
    pub(super) fn as_slice(&self) -> &[Hit] {
        self.places.get(..self.taken).unwrap_or_default()
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [Hit] {
        self.places.get_mut(..self.taken).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.taken = 0;
    }

    pub(super) fn push(&mut self, hit: Hit) {
        if let [place] = self.take(1) {
            *place = hit;
        }
    }

    /// So many more places, for the caller to write to.
    pub(super) fn take(&mut self, count: usize) -> &mut [Hit] {
        let begin = self.taken;
        self.taken += count;
        if self.places.len() < self.taken {
            self.places.resize(self.taken, Hit { stream: StreamId(0), tokens: 0 });
        }
        self.places.get_mut(begin..self.taken).unwrap_or_default()
    }

    /// Gives up the last places, so that so many are taken.
    pub(super) fn truncate(&mut self, length: usize) {
        self.taken = self.taken.min(length);
    }

    /// Gives up those of the last `count` places that have no tokens.
    #[cold]
    pub(super) fn drop_empty(&mut self, count: usize) {
        let begin = self.taken.saturating_sub(count);
        let mut kept = begin;
        for at in begin..self.taken {
            if let Some(hit) = self.places.get(at).copied().filter(|hit| hit.tokens > 0)
                && let Some(place) = self.places.get_mut(kept)
            {
                *place = hit;
                kept += 1;
            }
        }
        self.taken = kept;
    }

    pub(super) fn len(&self) -> usize {
        self.taken
    }
}
