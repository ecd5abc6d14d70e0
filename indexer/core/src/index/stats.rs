//! Sizes and counters of the index.

use crate::stream::Trust;

/// Where a batch came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// As it was published.
    Published,
    /// From the engine's replay buffer.
    Replayed,
}

/// Why everything of a stream was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearCause {
    /// The engine emptied its cache.
    EngineCleared,
    /// The engine restarted, or may have.
    Restarted,
    /// Events were lost that could not be had again.
    EventsLost,
    /// The endpoint left the fleet.
    EndpointGone,
}

/// Blocks admitted, by cause: a block counts when a stream that did not hold it comes to hold it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admissions {
    pub stored: u64,
    /// Stored, as told by a replay.
    pub restored: u64,
    /// Found to be held by the engine's own hash.
    pub recognized: u64,
    /// Stored in slower media.
    pub slower: u64,
    pub speculative: u64,
}

/// Blocks removed, by cause: a block counts when a stream no longer holds any copy of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removals {
    pub engine_removed: u64,
    pub engine_cleared: u64,
    pub restarted: u64,
    pub events_lost: u64,
    pub endpoint_gone: u64,
    /// Speculative blocks whose time was over, or whose stream was cleared.
    pub expired: u64,
    /// From slower media, for whatever reason.
    pub slower: u64,
}

/// Blocks told of but not indexed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Batches of streams that do not exist (any more).
    pub unknown_stream: u64,
    /// In a slower medium, of a KV group that is not a full one.
    pub other_medium: u64,
    /// Placeholders without tokens.
    pub placeholder: u64,
    /// The block before them was not known, nor for as long as there was room to keep them aside for it.
    pub unknown_parent: u64,
    /// Of an adapter known only by its local number.
    pub unnamed_lora: u64,
    /// Tokens do not fill the blocks.
    pub token_mismatch: u64,
    /// Of another size than the stream's blocks, or with another number of tokens ahead.
    pub block_size: u64,
    /// Of a KV group beyond those tracked.
    pub groups: u64,
    /// One engine hash for two different blocks.
    pub conflicting_hash: u64,
    /// One block stored more often than is counted.
    pub copies: u64,
    /// The index or the stream's share of it is full.
    pub capacity: u64,
    /// Speculations cut short by their limit.
    pub speculative_capacity: u64,
}

/// Blocks told of before the block they follow was: kept aside until that one is known, and never counted as held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsideStats {
    /// Aside now.
    pub blocks: usize,
    /// Memory they take now, about.
    pub bytes: usize,
    /// Given their place since the start. Those dropped are counted in [`Skipped::unknown_parent`].
    pub attached: u64,
}

/// Sizes and counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Distinct blocks with a place: held or expected by any stream, or before such a block in its chain.
    pub blocks: usize,
    /// (stream, engine hash) pairs.
    pub references: usize,
    pub streams: usize,
    /// Blocks speculated on, each as often as it was, whose time is not over.
    pub speculative_blocks: usize,
    pub admissions: Admissions,
    pub removals: Removals,
    pub skipped: Skipped,
    pub aside: AsideStats,
    /// Removals of blocks that were not held: harmless, and usual after a late join.
    pub unknown_removals: u64,
}

/// What is known of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamStats {
    /// Distinct blocks held.
    pub blocks: usize,
    /// Blocks that the engine removed from its main pool, one by one, since the stream began.
    pub evicted: u64,
    /// Distinct blocks held in slower media.
    pub slower_blocks: usize,
    /// Blocks kept aside because the block before them is not known.
    pub aside: usize,
    /// Tokens per block; `None` until the first event told.
    pub block_size: Option<u32>,
    pub trust: Trust,
    /// The engine has told of blocks in another medium since it started: it may find more than its main pool holds.
    pub has_other_media: bool,
}

// === impl Removals ===

impl Removals {
    pub(super) fn count_clear(&mut self, cause: ClearCause, blocks: u64) {
        let counter = match cause {
            ClearCause::EngineCleared => &mut self.engine_cleared,
            ClearCause::Restarted => &mut self.restarted,
            ClearCause::EventsLost => &mut self.events_lost,
            ClearCause::EndpointGone => &mut self.endpoint_gone,
        };
        *counter += blocks;
    }
}
