//! Blocks that a picked endpoint will hold soon, counted before its event comes: until it comes, or their time is over.

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
    /// Blocks speculated on, each as often as it was, until their time is over: what the limit is about.
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
        let first = keys.iter().filter(|key| blocks.speculate(**key, stream, expires_at)).count();
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
            let expires_at = entry.key().0;
            dropped += Self::undo(expires_at, &entry.remove(), &mut self.blocks, blocks);
        }
        dropped
    }

    /// The same for everything of one stream.
    pub(super) fn drop_stream(&mut self, stream: StreamId, blocks: &mut BlockTable) -> u64 {
        let mut dropped = 0;
        self.by_expiry.retain(|(expires_at, _), speculation| {
            let keeps = speculation.stream != stream;
            if !keeps {
                dropped += Self::undo(*expires_at, speculation, &mut self.blocks, blocks);
            }
            keeps
        });
        dropped
    }

    fn undo(until: Millis, speculation: &Speculation, counted: &mut usize, blocks: &mut BlockTable) -> u64 {
        *counted = counted.saturating_sub(speculation.keys.len());
        count(
            speculation
                .keys
                .iter()
                .filter(|key| blocks.unspeculate(**key, speculation.stream, until))
                .count(),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::decode::decode_batch;
    use crate::index::{Hits, Index, IndexLimits, Origin};
    use crate::key::{KeyHasher, Namespace};
    use crate::stream::{Millis, StreamId, Trust};

    const STREAM: StreamId = StreamId(1);
    const NAMESPACE: Namespace<'static> = Namespace { model: "m", lora: None, salt: None };
    const PROMPT: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

    /// MessagePack of one batch with one event: blocks of four tokens stored as 1 and 2, or removed.
    fn batch(event: &[u8]) -> Vec<u8> {
        [&[0x93, 0xca, 0, 0, 0, 0, 0x91], event, &[0xc0]].concat()
    }

    fn stored() -> Vec<u8> {
        let tokens = [0x98, 1, 2, 3, 4, 5, 6, 7, 8];
        batch(&[&[0x96, 0xab], &b"BlockStored"[..], &[0x92, 1, 2, 0xc0], &tokens, &[4, 0xc0]].concat())
    }

    fn removed() -> Vec<u8> {
        batch(&[&[0x92, 0xac], &b"BlockRemoved"[..], &[0x92, 2, 1]].concat())
    }

    fn index() -> Index {
        let mut index = Index::new(KeyHasher::new([7; 16]), IndexLimits::default());
        index.add_stream(STREAM, "m");
        index.set_trust(STREAM, Trust::Live);
        index
    }

    fn apply(index: &mut Index, payload: &[u8]) {
        let batch = decode_batch(payload).expect("a batch");
        assert!(!batch.events.is_empty(), "{:?}", batch.problems);
        index.apply(STREAM, &batch, Origin::Published);
    }

    fn hit(index: &Index) -> u32 {
        let mut hits = Hits::default();
        index.hits(&index.key_plan().keys(&NAMESPACE, &PROMPT), &mut hits);
        hits.tokens(STREAM)
    }

    #[test]
    fn an_eviction_shows_although_the_block_was_speculated_on_before_it_was_stored() {
        let mut index = index();
        apply(&mut index, &stored());
        apply(&mut index, &removed());
        let keys = index.key_plan().keys(&NAMESPACE, &PROMPT);
        index.speculate(STREAM, &keys, Millis(15_000));
        index.speculate(STREAM, &keys, Millis(16_000));
        assert_eq!(hit(&index), 8, "speculated on");
        apply(&mut index, &stored());
        assert_eq!(hit(&index), 8, "stored");
        apply(&mut index, &removed());
        assert_eq!(hit(&index), 0, "evicted");
        index.speculate(STREAM, &keys, Millis(30_000));
        index.expire(Millis(20_000));
        assert_eq!(hit(&index), 8, "a new speculation outlives the old ones");
        assert_eq!(index.stats().removals.expired, 0);
        index.expire(Millis(30_000));
        assert_eq!(index.stats().blocks, 0);
    }

    #[test]
    fn a_speculation_that_never_comes_true_expires() {
        let mut index = index();
        apply(&mut index, &stored());
        apply(&mut index, &removed());
        let keys = index.key_plan().keys(&NAMESPACE, &PROMPT);
        index.speculate(STREAM, &keys, Millis(15_000));
        index.expire(Millis(14_999));
        assert_eq!(hit(&index), 8);
        index.expire(Millis(15_000));
        assert_eq!(hit(&index), 0);
        assert_eq!(index.stats().removals.expired, 2);
    }
}
