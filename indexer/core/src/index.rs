//! The block index: per stream, which blocks its engine holds, and so how long a prefix of a prompt.
//!
//! In: decoded batches, clears, speculations. Out: [`Hits`]. The index owns what is held; whether a stream's part may
//! be believed is decided by its sequencer and only noted here ([`Index::set_trust`]).
//!
//! - Blocks are found by our own [`BlockKey`]; engine hashes only link events of one stream to each other.
//! - References are counted per (stream, group, key): engines do not merge equal blocks, so one hash may be stored
//!   three times and removed three times at different moments, and a set would lose it at the first.
//! - With several KV groups a block counts where every full-attention group has it, and a boundary counts where every
//!   sliding-window group has the blocks just before it.
//! - Where an engine's hashes cover tokens behind their block (lookahead of some drafters), so do the keys, and a hit ends a
//!   block earlier: such engines compute the last block that they find again.
//! - The block size is learnt from the events, per stream, so it cannot be configured wrongly.
//! - The engine's main pool (medium `GPU`) decides a hit. What slower media hold (host memory, disks, stores) is indexed
//!   beside it, and a lookup tells how far the prefix goes on with them.
//!
//! Not seen: whether a recurrent-state group has a checkpoint at a boundary (hits are then an upper bound), and models
//! all of whose layers are windowed (no hits).

use crate::event::{Batch, EngineHash, Event};
use crate::key::{BlockKey, KeyHasher};
use crate::prompt_keys::{KeyPlan, PromptKeys};
use crate::stream::{Millis, StreamId, Trust};

mod aside;
mod attach;
mod chains;
mod groups;
mod hits;
mod hold;
mod namespace;
mod place;
mod references;
mod removed;
mod slower;
mod speculation;
mod stats;
mod stored;
mod streams;

pub use hits::{Hit, Hits};
pub use stats::{Admissions, AsideStats, ClearCause, IndexStats, Origin, Removals, Skipped, StreamStats};

use chains::Chains;
use place::Slot;
use speculation::Speculations;
use streams::Streams;

/// Bounds of the index's memory, in its units; [`IndexLimits::bytes`] is what they come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLimits {
    /// Most (stream, engine hash) pairs in all. Beyond it new blocks are refused, not old ones dropped: engines drop
    /// their own, and the oldest block of all is the system prompt that everyone uses.
    pub references_max: usize,
    /// The same for one stream, so that one that never removes cannot starve the others.
    pub stream_references_max: usize,
    /// Most speculative blocks in all.
    pub speculative_max: usize,
    /// Most bytes of blocks kept aside in all, since what they wait for may never come. The oldest are dropped.
    pub aside_bytes_max: usize,
    /// The same for one stream: 50,000 blocks of 16 tokens, about what one replica holds. Who joins such a one late
    /// hears of no more that are behind unknown ones.
    pub stream_aside_bytes_max: usize,
    /// Most blocks aside that get their place at once, or few more; the others follow with the next batches and the next
    /// [`Index::expire`], so that readers are not held up: so many take about half a millisecond.
    pub attached_max: usize,
    /// How long a copy in a slower medium counts, if the engine has never told of a removal from that medium. Some
    /// connectors tell of none; a store that is full turns over in some ten minutes under load.
    pub unremoved_ms_max: u64,
}

/// What one reference to a block that no other stream holds takes: its key, its hold and the engine's hash, in tables
/// that are between half full and full. Measured; a reference to a shared block takes less.
const REFERENCE_BYTES: usize = 44;
const BLOCK_KEY_BYTES: usize = size_of::<BlockKey>();

/// See the module's documentation.
#[derive(Debug)]
pub struct Index {
    hasher: KeyHasher,
    limits: IndexLimits,
    chains: Chains,
    streams: Streams,
    /// Sum of the streams' engine hashes.
    references: usize,
    /// Sum of what the streams keep aside.
    aside_bytes: usize,
    /// Blocks ever kept aside.
    arrivals: u64,
    speculations: Speculations,
    /// As last told.
    now: Millis,
    stats: IndexStats,
}

// === impl IndexLimits ===

impl IndexLimits {
    /// Bytes of memory that a full index takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let references = self.references_max.saturating_mul(REFERENCE_BYTES);
        let blocks = self.blocks_max().saturating_sub(self.references_max).saturating_mul(BLOCK_KEY_BYTES);
        references.saturating_add(blocks).saturating_add(self.aside_bytes_max)
    }

    /// Most blocks with a place: each reference may have one, and as many again that nobody holds may stand before those
    /// in their chains, after engines evicted the beginnings of prompts before their ends.
    fn blocks_max(&self) -> usize {
        self.references_max.saturating_mul(2).saturating_add(self.speculative_max)
    }
}

impl Default for IndexLimits {
    fn default() -> Self {
        Self {
            references_max: 32 << 20,
            stream_references_max: 4 << 20,
            speculative_max: 1 << 20,
            aside_bytes_max: 64 << 20,
            stream_aside_bytes_max: 16 << 20,
            attached_max: 256,
            unremoved_ms_max: 30 * 60 * 1000,
        }
    }
}

// === impl Index ===

impl Index {
    #[must_use]
    pub fn new(hasher: KeyHasher, limits: IndexLimits) -> Self {
        Self {
            hasher,
            limits,
            chains: Chains::new(limits.blocks_max()),
            streams: Streams::default(),
            references: 0,
            aside_bytes: 0,
            arrivals: 0,
            speculations: Speculations::default(),
            now: Millis(0),
            stats: IndexStats::default(),
        }
    }

    /// Begins a stream of an engine that serves `model`. A stream that exists already is emptied.
    pub fn add_stream(&mut self, stream: StreamId, model: &str) {
        self.clear(stream, ClearCause::EndpointGone);
        self.streams.remove(stream);
        self.streams.add(stream, model);
    }

    /// Forgets a stream. Whatever is applied to it later is ignored.
    pub fn remove_stream(&mut self, stream: StreamId) {
        self.clear(stream, ClearCause::EndpointGone);
        self.streams.remove(stream);
    }

    /// Notes how far the stream may be believed; streams that may not give no hits.
    pub fn set_trust(&mut self, stream: StreamId, trust: Trust) {
        let Some(slot) = self.streams.slot(stream) else { return };
        if let Some(stream) = self.streams.get_mut(slot) {
            stream.trust = trust;
        }
        self.streams.note(slot);
    }

    /// Applies a batch. Returns whether it emptied the cache ([`Event::Cleared`]), after which the index knows the
    /// stream's cache exactly, whatever was lost before.
    pub fn apply(&mut self, stream: StreamId, batch: &Batch, origin: Origin) -> bool {
        let Some(slot) = self.streams.slot(stream) else {
            self.stats.skipped.unknown_stream += 1;
            return false;
        };
        self.resume_attaching(slot);
        let mut emptied = false;
        for event in &batch.events {
            match event {
                Event::Stored(stored) => self.store(stream, stored, origin),
                Event::Removed(removed) => self.remove(stream, removed),
                Event::Cleared => {
                    self.clear(stream, ClearCause::EngineCleared);
                    emptied = true;
                }
            }
        }
        self.streams.note(slot);
        emptied
    }

    /// Forgets everything that a stream holds; the stream goes on. An engine that emptied its cache did not empty its
    /// slower media.
    pub fn clear(&mut self, id: StreamId, cause: ClearCause) {
        let Some(slot) = self.streams.slot(id) else { return };
        self.stats.removals.expired += self.speculations.drop_stream(slot, &mut self.chains);
        if cause != ClearCause::EngineCleared {
            self.clear_slower(slot);
        }
        let Some(stream) = self.streams.get_mut(slot) else { return };
        self.chains.drop_holds(stream.pool.chains(), slot);
        self.stats.removals.count_clear(cause, count(stream.pool.blocks));
        self.references = self.references.saturating_sub(stream.pool.len());
        self.aside_bytes = self.aside_bytes.saturating_sub(stream.aside.bytes());
        stream.reset(cause);
        self.streams.note(slot);
    }

    fn clear_slower(&mut self, slot: Slot) {
        let Some(slower) = self.streams.get_mut(slot).and_then(|stream| stream.slower.as_mut()) else {
            return;
        };
        self.chains.drop_holds(slower.pool.chains(), slower.slot);
        self.stats.removals.slower += count(slower.pool.blocks);
        self.references = self.references.saturating_sub(slower.pool.len());
        self.streams.end_slower(slot);
    }

    /// How to make the keys of prompts now: with every layout of blocks that a stream has shown.
    #[must_use]
    pub fn key_plan(&self) -> KeyPlan {
        let mut layouts: Vec<_> = self.streams.iter().filter_map(|stream| stream.layout).collect();
        layouts.sort_unstable();
        layouts.dedup();
        KeyPlan { hasher: self.hasher.clone(), layouts }
    }

    /// Leading tokens of the prompt that each scored stream holds, at most all but the last token, in whole blocks.
    /// Streams that hold none are not listed. `out` is overwritten; reusing it saves its allocations.
    pub fn hits(&self, keys: &PromptKeys, out: &mut Hits) {
        debug_assert!(self.streams.is_noted(), "what lookups go by is noted");
        hits::find(&self.chains, &self.streams, keys, out);
    }

    /// Counts the prompt's whole blocks as held by `stream` until `expires_at`, where they are not held already: an
    /// endpoint that was just picked will have them soon. Does nothing for a stream whose block size is not known yet.
    pub fn speculate(&mut self, stream: StreamId, keys: &PromptKeys, expires_at: Millis) {
        let Some(slot) = self.streams.slot(stream) else { return };
        let Some(layout) = self.streams.get(slot).and_then(|stream| stream.layout) else { return };
        let room = self.limits.speculative_max.saturating_sub(self.speculations.blocks());
        let begun = self.speculations.add(slot, keys.of_layout(layout), room, expires_at, &mut self.chains);
        self.stats.admissions.speculative += begun.first;
        if begun.is_cut {
            self.stats.skipped.speculative_capacity += 1;
        }
    }

    /// Drops what has a time, and its time is over: speculative blocks, and copies in media without removals. Also tells
    /// the index the time, and goes on with what was too much for once, so it should be called every few seconds at least.
    pub fn expire(&mut self, now: Millis) {
        self.now = self.now.max(now);
        self.stats.removals.expired += self.speculations.expire(now, &mut self.chains);
        self.expire_slower();
        self.resume_attaching_all();
    }

    /// Whether blocks of any stream are aside; see [`awaits`](Self::awaits).
    #[must_use]
    pub fn has_aside(&self) -> bool {
        self.aside_bytes > 0
    }

    /// Sizes and counters since the start.
    #[must_use]
    pub fn stats(&self) -> IndexStats {
        IndexStats {
            blocks: self.chains.blocks(),
            references: self.references,
            streams: self.streams.len(),
            speculative_blocks: self.speculations.blocks(),
            aside: AsideStats {
                blocks: self.streams.iter().map(|stream| stream.aside.len()).sum(),
                bytes: self.aside_bytes,
                ..self.stats.aside
            },
            ..self.stats
        }
    }

    /// The engine hashes that a stream holds, each in its main pool, with its copies in all groups, in no order: what an audit compares
    /// with the engine. Empty where the stream does not exist. Looks at everything that the stream holds.
    pub fn copies(&self, stream: StreamId) -> impl Iterator<Item = (EngineHash, u32)> {
        self.streams.by_id(stream).into_iter().flat_map(|stream| stream.pool.copies())
    }

    /// What is known of one stream; `None` where it does not exist.
    #[must_use]
    pub fn stream_stats(&self, stream: StreamId) -> Option<StreamStats> {
        self.streams.by_id(stream).map(|stream| StreamStats {
            blocks: stream.pool.blocks,
            evicted: stream.evicted,
            slower_blocks: stream.slower.as_ref().map_or(0, |slower| slower.pool.blocks),
            aside: stream.aside.len(),
            block_size: stream.layout.map(|layout| layout.size()),
            trust: stream.trust,
            has_other_media: stream.has_other_media,
        })
    }
}

/// `usize` to a counter.
fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
