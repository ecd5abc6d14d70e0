//! The lookups of the index in use: first of the empty one that a program starts with, then of the one that it has taken
//! up from images. Changed once; who is in the middle of a decision goes on with the one it has.

use std::ops::Deref;
use std::sync::OnceLock;

use warmpath_kv::index::Reader;

/// See the module's documentation.
#[derive(Debug)]
pub struct Lookups {
    first: Reader,
    taken_up: OnceLock<Reader>,
}

// === impl Lookups ===

impl Lookups {
    pub fn new(first: Reader) -> Self {
        Self { first, taken_up: OnceLock::new() }
    }

    /// From now on these. A second time nothing changes.
    pub fn take_up(&self, reader: Reader) {
        let _kept = self.taken_up.set(reader);
    }
}

impl Deref for Lookups {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        self.taken_up.get().unwrap_or(&self.first)
    }
}
