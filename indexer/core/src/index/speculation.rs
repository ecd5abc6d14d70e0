//! Blocks that a picked endpoint will hold soon, counted before its event comes: until it comes, or their time is over.

use std::collections::BTreeMap;

use crate::key::BlockKey;
use crate::stream::Millis;

use super::chains::Chains;
use super::place::{ChainId, Place, Slot};

#[derive(Debug, Default)]
pub(super) struct Speculations {
    /// By expiry, then by order of arrival.
    by_expiry: BTreeMap<(Millis, u64), Speculation>,
    arrivals: u64,
    blocks: usize,
    /// Most of them.
    blocks_max: usize,
    counts: SpeculationCounts,
}

/// Since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SpeculationCounts {
    /// Blocks that were not expected before.
    pub(super) first: u64,
    /// Speculations cut short by the limit.
    pub(super) cut: u64,
    /// Blocks that ceased to be expected, because their time was over or their stream was cleared.
    pub(super) expired: u64,
}

#[derive(Debug)]
struct Speculation {
    slot: Slot,
    /// Where the blocks have their places. A chain may be gone by the end, and its number used again: then nothing in
    /// it is expected so early by this stream, or rightly forgotten.
    chains: Vec<ChainId>,
    /// Blocks speculated on.
    blocks: usize,
}

// === impl Speculations ===

impl Speculations {
    pub(super) fn new(blocks_max: usize) -> Self {
        Self { blocks_max, ..Self::default() }
    }

    pub(super) fn counts(&self) -> SpeculationCounts {
        self.counts
    }

    /// Blocks speculated on, each as often as it was, until their time is over: what the limit is about.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Expects those of some blocks of a prompt that the stream does not hold, as many of them as there is room for.
    /// `after`: the place of the block before them. `more`: how many come behind them. Returns the place of the last one;
    /// `None`: the limit cut it short.
    pub(super) fn add(
        &mut self,
        slot: Slot,
        after: Option<Place>,
        blocks: &[BlockKey],
        more: usize,
        until: Millis,
        chains: &mut Chains,
    ) -> Option<Place> {
        let room = self.blocks_max.saturating_sub(self.blocks);
        let mut speculation = Speculation { slot, chains: Vec::new(), blocks: 0 };
        let (mut after, mut is_cut) = (after, false);
        let mut stretch: Option<(ChainId, u32, u32)> = None;
        for (position, key) in blocks.iter().enumerate() {
            let found = chains.find(after, *key);
            let is_stored = found.is_some_and(|place| {
                chains.hold(place.chain, slot).is_some_and(|hold| !hold.stored(place.at).is_empty())
            });
            let has_place = found.is_some() || chains.has_room();
            if !is_stored && (speculation.blocks == room || !has_place) {
                self.counts.cut += 1;
                is_cut = true;
                break;
            }
            let place = match found {
                Some(place) => place,
                None => chains.place(after, *key, blocks.len() - position - 1 + more),
            };
            after = Some(place);
            stretch = match stretch {
                Some((chain, from, to)) if !is_stored && chain == place.chain && to == place.at => {
                    Some((chain, from, to + 1))
                }
                earlier => {
                    self.counts.first += speculation.expect(earlier, until, chains);
                    (!is_stored).then_some((place.chain, place.at, place.at + 1))
                }
            };
            speculation.blocks += usize::from(!is_stored);
        }
        self.counts.first += speculation.expect(stretch, until, chains);
        if speculation.blocks > 0 {
            self.blocks += speculation.blocks;
            self.arrivals += 1;
            self.by_expiry.insert((until, self.arrivals), speculation);
        }
        after.filter(|_| !is_cut)
    }

    /// Ends the speculation whose time is over for longest; `false`: there is none.
    pub(super) fn expire_one(&mut self, now: Millis, chains: &mut Chains) -> bool {
        let oldest = self.by_expiry.first_entry().filter(|entry| entry.key().0 <= now);
        let Some(((until, _), speculation)) = oldest.map(|entry| entry.remove_entry()) else { return false };
        self.end(speculation, until, chains);
        true
    }

    /// Ends all of one stream's.
    pub(super) fn drop_stream(&mut self, slot: Slot, chains: &mut Chains) {
        let of_stream = self.by_expiry.extract_if(.., |_, speculation| speculation.slot == slot);
        for ((until, _), speculation) in of_stream.collect::<Vec<_>>() {
            self.end(speculation, until, chains);
        }
    }

    fn end(&mut self, speculation: Speculation, until: Millis, chains: &mut Chains) {
        self.blocks = self.blocks.saturating_sub(speculation.blocks);
        let expired = |chain| u64::from(chains.expire(chain, speculation.slot, until));
        self.counts.expired += speculation.chains.into_iter().map(expired).sum::<u64>();
    }
}

// === impl Speculation ===

impl Speculation {
    /// Expects a stretch of one chain. Returns how many blocks were not expected before.
    fn expect(&mut self, stretch: Option<(ChainId, u32, u32)>, until: Millis, chains: &mut Chains) -> u64 {
        let Some((chain, from, to)) = stretch else { return 0 };
        if self.chains.last() != Some(&chain) {
            self.chains.push(chain);
        }
        chains.expect(chain, self.slot, from..to, until).into()
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
