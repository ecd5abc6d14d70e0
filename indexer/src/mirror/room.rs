//! How much memory images may still take at the start, whoever gives them.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of images that are taken at most: more blocks than any index here has room for.
pub(super) const IMAGE_BYTES_MAX: usize = 4 << 30;

/// Bytes that are free yet. Taken before anything is read.
#[derive(Debug)]
pub struct Room(AtomicUsize);

// === impl Room ===

impl Room {
    pub fn of(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    /// False: there is not so much left, and nothing is taken.
    pub fn take(&self, bytes: usize) -> bool {
        let less = |free: usize| free.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    pub fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::of(IMAGE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_takes_nothing() {
        let room = Room::of(10);
        assert!(room.take(7) && !room.take(4) && room.take(3) && room.take(0) && !room.take(1));
        room.give_back(7);
        assert!(!room.take(8) && room.take(7));
    }
}
