//! Small numbers for where blocks are and who holds them, and their limits.

/// A stream's number inside the index: small and used again after the stream is gone, so that a lookup finds streams
/// without hashing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot(pub(super) u32);

/// A chain's number. Used again after the chain is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ChainId(pub(super) u32);

/// A block's place: the `at`th block of a chain, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) chain: ChainId,
    pub(super) at: u32,
}

/// Most blocks of one chain, so that a place fits in the word that an engine hash stands for; 16,777,215 blocks of one
/// prompt are 268 million tokens.
pub(super) const CHAIN_BLOCKS_MAX: u32 = (1 << 24) - 1;

/// Most KV groups tracked per stream. Models of today have up to seven; of more, the later ones do not limit hits.
pub(super) const GROUPS_MAX: usize = 8;

/// Copies per group slot.
pub type PerGroup = [u8; GROUPS_MAX];

/// A table is made smaller when less than one part in so many is used.
pub(super) const SHRINK_BELOW: usize = 8;

// === impl Slot ===

impl Slot {
    pub(super) fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}
