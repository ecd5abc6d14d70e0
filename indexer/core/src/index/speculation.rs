//! Blocks that a picked endpoint will hold soon, counted before its event comes, until their time is over.

use std::collections::BTreeMap;

use crate::key::BlockKey;
use crate::stream::{Millis, StreamId};

use super::blocks::BlockTable;
use super::count;

#[derive(Debug, Default)]
pub(super) struct Speculations {
    /// By expiry, then by order of arrival.
    by_expiry: BTreeMap<(Millis, u64), Speculation>,
    arrivals: u64,
    blocks: usize,
}

#[derive(Debug)]
struct Speculation {
    stream: StreamId,
    keys: Vec<BlockKey>,
}

// === impl Speculations ===

impl Speculations {
    /// Blocks counted, each as often as it is speculated on.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns how many blocks came to be held speculatively.
    pub(super) fn add(
        &mut self,
        stream: StreamId,
        keys: Vec<BlockKey>,
        expires_at: Millis,
        blocks: &mut BlockTable,
    ) -> u64 {
        if keys.is_empty() {
            return 0;
        }
        let first = keys.iter().filter(|key| blocks.speculate(**key, stream)).count();
        self.blocks += keys.len();
        self.arrivals += 1;
        self.by_expiry.insert((expires_at, self.arrivals), Speculation { stream, keys });
        count(first)
    }

    /// Returns how many blocks ceased to be held speculatively.
    pub(super) fn expire(&mut self, now: Millis, blocks: &mut BlockTable) -> u64 {
        let mut dropped = 0;
        while let Some(entry) = self.by_expiry.first_entry() {
            if entry.key().0 > now {
                break;
            }
            dropped += Self::undo(&entry.remove(), &mut self.blocks, blocks);
        }
        dropped
    }

    /// The same for everything of one stream.
    pub(super) fn drop_stream(&mut self, stream: StreamId, blocks: &mut BlockTable) -> u64 {
        let mut dropped = 0;
        self.by_expiry.retain(|_, speculation| {
            let keeps = speculation.stream != stream;
            if !keeps {
                dropped += Self::undo(speculation, &mut self.blocks, blocks);
            }
            keeps
        });
        dropped
    }

    fn undo(speculation: &Speculation, counted: &mut usize, blocks: &mut BlockTable) -> u64 {
        *counted = counted.saturating_sub(speculation.keys.len());
        count(speculation.keys.iter().filter(|key| blocks.unspeculate(**key, speculation.stream)).count())
    }
}
