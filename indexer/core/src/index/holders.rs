//! Who holds something of one chain.

use super::hold::Hold;
use super::place::Slot;

/// Sorted by slot; no hold is empty but one that is just being added to.
///
/// Most chains have one holder. That one lies in the chain itself, so that a lookup need not go for it.
#[derive(Debug)]
pub(super) enum Holders {
    One(Hold),
    Any(Vec<Hold>),
}

// === impl Holders ===

impl Holders {
    #[inline]
    pub(super) fn as_slice(&self) -> &[Hold] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Any(all) => all,
        }
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [Hold] {
        match self {
            Self::One(one) => std::slice::from_mut(one),
            Self::Any(all) => all,
        }
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Hold> {
        let position = self.position(slot).ok()?;
        self.as_slice().get(position)
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Hold> {
        let position = self.position(slot).ok()?;
        self.as_mut_slice().get_mut(position)
    }

    /// What the stream holds, to be added to.
    #[inline]
    pub(super) fn get_or_insert(&mut self, slot: Slot) -> &mut Hold {
        let position = match self.position(slot) {
            Ok(position) => position,
            Err(position) => {
                self.insert(position, slot);
                position
            }
        };
        #[expect(clippy::indexing_slicing, reason = "found or inserted at this place just above")]
        &mut self.as_mut_slice()[position]
    }

    /// Forgets what the stream holds. Returns whether that was something.
    pub(super) fn remove(&mut self, slot: Slot) -> bool {
        let Ok(position) = self.position(slot) else { return false };
        match self {
            Self::One(_) => *self = Self::default(),
            Self::Any(all) => {
                all.remove(position);
                if all.len() == 1
                    && let Some(last) = all.pop()
                {
                    *self = Self::One(last);
                }
            }
        }
        true
    }

    fn insert(&mut self, position: usize, slot: Slot) {
        let new = Hold::new(slot);
        *self = match std::mem::take(self) {
            Self::Any(all) if all.is_empty() => Self::One(new),
            Self::Any(mut all) => {
                all.insert(position, new);
                Self::Any(all)
            }
            Self::One(one) if position == 0 => Self::Any(vec![new, one]),
            Self::One(one) => Self::Any(vec![one, new]),
        };
    }

    #[inline]
    fn position(&self, slot: Slot) -> Result<usize, usize> {
        self.as_slice().binary_search_by_key(&slot, |hold| hold.slot)
    }
}

impl Default for Holders {
    fn default() -> Self {
        Self::Any(Vec::new())
    }
}
