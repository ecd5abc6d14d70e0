//! Metrics of streams and index, made from their counters at each scrape.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use warmpath_kv::Index;

use super::status::Board;

/// Reads the status of every stream and of the index at each scrape.
pub struct Collector {
    board: Arc<Board>,
    index: Arc<RwLock<Index>>,
}

// === impl Collector ===

impl Collector {
    pub(super) fn new(board: Arc<Board>, index: Arc<RwLock<Index>>) -> Self {
        Self { board, index }
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}
