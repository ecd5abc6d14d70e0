//! Batches that wait for what comes before them. Bounded in number and bytes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::index::Origin;

use super::{Waiting, Weight};

#[derive(Debug)]
pub(super) struct Buffer<B> {
    by_seq: BTreeMap<u64, (B, Origin)>,
    bytes: usize,
    batches_max: usize,
    bytes_max: usize,
}

impl<B: Weight> Buffer<B> {
    pub(super) fn new(batches_max: usize, bytes_max: usize) -> Self {
        Self { by_seq: BTreeMap::new(), bytes: 0, batches_max, bytes_max }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_seq.is_empty()
    }

    pub(super) fn size(&self) -> Waiting {
        Waiting { batches: self.by_seq.len(), bytes: self.bytes }
    }

    pub(super) fn clear(&mut self) {
        self.by_seq.clear();
        self.bytes = 0;
    }

    /// `false`: no room. A batch that waits already stays as it is.
    pub(super) fn insert(&mut self, seq: u64, batch: B, origin: Origin) -> bool {
        let bytes = self.bytes.saturating_add(batch.bytes());
        let has_room = self.by_seq.len() < self.batches_max && bytes <= self.bytes_max;
        match self.by_seq.entry(seq) {
            Entry::Occupied(_) => true,
            Entry::Vacant(vacant) if has_room => {
                vacant.insert((batch, origin));
                self.bytes = bytes;
                true
            }
            Entry::Vacant(_) => false,
        }
    }

    /// Takes the batch `next` if it is here; batches before it are dropped, having been applied.
    pub(super) fn pop(&mut self, next: u64) -> Option<(u64, B, Origin)> {
        while let Some(entry) = self.by_seq.first_entry() {
            if *entry.key() > next {
                return None;
            }
            let (seq, (batch, origin)) = entry.remove_entry();
            self.bytes = self.bytes.saturating_sub(batch.bytes());
            if seq == next {
                return Some((seq, batch, origin));
            }
        }
        None
    }

    /// Drops all but the newest batches that follow each other without a gap; the number of the first of them.
    pub(super) fn keep_last_run(&mut self) -> Option<u64> {
        let mut first = *self.by_seq.last_key_value()?.0;
        for &seq in self.by_seq.keys().rev().skip(1) {
            if seq.checked_add(1) != Some(first) {
                break;
            }
            first = seq;
        }
        self.by_seq = self.by_seq.split_off(&first);
        self.bytes = self.by_seq.values().map(|(batch, _)| batch.bytes()).sum();
        Some(first)
    }
}
