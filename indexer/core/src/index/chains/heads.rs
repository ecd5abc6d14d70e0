//! The first keys of all chains. In many small tables: one of them is copied to grow, with every lookup waiting for it, and
//! that takes some microseconds.

use std::hash::BuildHasherDefault;

use hashbrown::HashMap;

use crate::key::BlockKey;

use super::super::place::{ChainId, SHRINK_BELOW};
use super::KeyAsHash;

/// A million chains are 16,384 to a table; the tables themselves are 32 lines of the cache, which each lookup goes through.
pub(super) const TABLES: usize = 64;

/// Bits of a key that no table looks at itself: they go by the lowest and the highest ones.
const SHIFT: u32 = 36;

type Table = HashMap<BlockKey, ChainId, BuildHasherDefault<KeyAsHash>>;

#[derive(Debug)]
pub(super) struct Heads {
    tables: Box<[Table; TABLES]>,
}

// === impl Heads ===

impl Heads {
    #[inline]
    pub(super) fn get(&self, key: BlockKey) -> Option<ChainId> {
        self.tables.get(table(key))?.get(&key).copied()
    }

    #[inline]
    pub(super) fn contains(&self, key: BlockKey) -> bool {
        self.tables.get(table(key)).is_some_and(|table| table.contains_key(&key))
    }

    pub(super) fn insert(&mut self, key: BlockKey, chain: ChainId) {
        if let Some(table) = self.tables.get_mut(table(key)) {
            table.insert(key, chain);
        }
    }

    /// Gives memory back when little of it is used.
    pub(super) fn remove(&mut self, key: BlockKey) {
        if let Some(table) = self.tables.get_mut(table(key)) {
            table.remove(&key);
            if table.len() < table.capacity() / SHRINK_BELOW {
                table.shrink_to(table.len() * 2);
            }
        }
    }

    /// Chains that there is room for before memory is taken.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.tables.iter().map(HashMap::capacity).sum()
    }
}

impl Default for Heads {
    fn default() -> Self {
        Self { tables: Box::new(std::array::from_fn(|_| Table::default())) }
    }
}

#[inline]
fn table(key: BlockKey) -> usize {
    usize::try_from(key.0 >> SHIFT).unwrap_or_default() % TABLES
}
