//! What a stream holds as plain numbers: what an [image](super::image) consists of.

use crate::event::GroupKind;

use super::place::PerGroup;

/// What one stream holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamImage {
    pub model: Box<str>,
    /// Tokens per block; 0: not known.
    pub block_size: u32,
    /// Tokens behind a block that its key covers.
    pub ahead: u32,
    pub has_other_media: bool,
    /// In the order of their slots.
    pub groups: Vec<GroupImage>,
    /// Blocks of each chain.
    pub lengths: Vec<u32>,
    /// The chains' keys, one chain after the other.
    pub keys: Vec<u64>,
    pub main: PoolImage,
    /// What other media hold, if any was told of.
    pub slower: Option<SlowerImage>,
}

/// One KV group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupImage {
    pub index: Option<u32>,
    pub kind: GroupKind,
    pub block_size: u32,
}

/// The engine hashes of one pool and what they stand for, in the order of their places; the four lists go side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolImage {
    pub hashes: Vec<u64>,
    /// Numbers of chains in the image.
    pub chains: Vec<u32>,
    /// Places in them.
    pub offsets: Vec<u32>,
    /// Copies counted under each hash, 1 to 255.
    pub copies: Vec<u8>,
    pub holds: Vec<HoldImage>,
    /// Hashes whose blocks have no place, with their copies per group.
    pub unplaced: Vec<(u64, PerGroup)>,
    /// Copies of a block beyond the first, per group: chain, place, copies.
    pub spare: Vec<(u32, u32, PerGroup)>,
}

/// What a pool holds of one chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldImage {
    pub chain: u32,
    /// Leading blocks that the first group has.
    pub leading: u32,
    /// Blocks that it has behind a hole: a bit each, the lowest bit of the first word for the first block of the chain.
    pub scattered: Vec<u64>,
    /// Per block: the other groups that have it, a bit each.
    pub others: Vec<u8>,
}

/// What media other than the main pool hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowerImage {
    pub pool: PoolImage,
    /// Per medium.
    pub media: Vec<MediumImage>,
    /// Copies that go by their age, the oldest first: medium and hash.
    pub ageing: Vec<(u32, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediumImage {
    /// Blocks of the main pool's size that one hash stands for; 0: not known.
    pub parts: u32,
    pub tells_removals: bool,
}

// === impl StreamImage ===

impl StreamImage {
    /// Engine hashes in it.
    #[must_use]
    pub fn references(&self) -> usize {
        let pools = [Some(&self.main), self.slower.as_ref().map(|slower| &slower.pool)];
        pools.into_iter().flatten().map(|pool| pool.hashes.len() + pool.unplaced.len()).sum()
    }
}

// === impl HoldImage ===

impl HoldImage {
    /// The group has the block.
    pub(super) fn has(&self, at: u32, group: usize) -> bool {
        let is_scattered = || {
            let word = self.scattered.get(index(at / u64::BITS));
            word.is_some_and(|word| word >> (at % u64::BITS) & 1 == 1)
        };
        if group == 0 {
            return at < self.leading || is_scattered();
        }
        self.others.get(index(at)).is_some_and(|groups| groups >> group & 1 == 1)
    }

    /// Behind the last block held.
    pub(super) fn end(&self) -> u32 {
        let others = u32::try_from(self.others.len()).unwrap_or(u32::MAX);
        let scattered = self.scattered.last().map_or(0, |last| {
            let words = u32::try_from(self.scattered.len()).unwrap_or(u32::MAX);
            words.saturating_mul(u64::BITS).saturating_sub(last.leading_zeros())
        });
        self.leading.max(others).max(scattered)
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
