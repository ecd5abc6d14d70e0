//! How many leading blocks every holder of a chain has: asked of hundreds of holds, and nearly always the same as last time.

use std::sync::atomic::{AtomicU32, Ordering};

use super::super::hold::Hold;

/// What the last lookup found out, until a hold changes: whoever looks, holds the lock for reading, so all of them find the
/// same, and whoever changes a hold has the chain for itself.
#[derive(Debug, Default)]
pub(super) struct Least(
    /// 0: not known, or there is more to some hold than its leading blocks.
    AtomicU32,
);

/// Of so many holders it is worth to be kept. Few are gone through in less time than it takes to write to what others read.
const HOLDERS_MIN: usize = 16;

// === impl Least ===

impl Least {
    #[inline]
    pub(super) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Of these holds. Returns whether there is nothing to any of them but leading blocks.
    #[inline]
    pub(super) fn note(&self, holds: &[Hold]) -> bool {
        let (least, are_solid) = holds.iter().fold((u32::MAX, true), |(least, are_solid), hold| {
            (least.min(hold.solid()), are_solid & hold.is_solid())
        });
        if are_solid && holds.len() >= HOLDERS_MIN && self.get() != least {
            self.0.store(least, Ordering::Relaxed);
        }
        are_solid
    }

    #[inline]
    pub(super) fn forget(&mut self) {
        *self.0.get_mut() = 0;
    }
}
