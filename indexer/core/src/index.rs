//! The block index: per stream, which blocks its engine holds, and so how long a prefix of a prompt.
//!
//! In: decoded batches, clears, speculations. Out: [`Hits`]. The index owns what is held; whether a stream's part may
//! be believed is decided by its sequencer and only noted here ([`Index::set_trust`]).
//!
//! - Blocks are found by our own [`BlockKey`]; engine hashes only link events of one stream to each other.
//! - References are counted per (stream, group, key): engines do not merge equal blocks, so one hash may be stored
//!   three times and removed three times at different moments, and a set would lose it at the first.
//! - With several KV groups a block counts where every full-attention group has it, and a boundary counts where every
//!   sliding-window group has the blocks just before it and every recurrent one (Mamba, linear attention) a checkpoint.
//! - Where an engine's hashes cover tokens behind their block (lookahead of some drafters), so do the keys, and a hit ends a
//!   block earlier: such engines compute the last block that they find again.
//! - The block size is learnt from the events, per stream, so it cannot be configured wrongly. Until then it may be
//!   guessed ([`Index::guess_block_size`]), for what picks will bring.
//! - The engine's main pool (medium `GPU`) decides a hit. What slower media hold (host memory, disks, stores) is indexed
//!   beside it, and a lookup tells how far the prefix goes on with them.
//!
//! Not seen: what groups of other kinds hold (hits are then an upper bound), and models without full attention in any layer
//! (no hits).

use std::num::NonZeroU32;

use crate::event::{Batch, EngineHash, Event};
use crate::key::{BlockKey, KeyHasher};
use crate::prompt_keys::{KeyPlan, Layout, PromptKeys};
use crate::stream::{Millis, StreamId, Trust};

mod aside;
mod attach;
mod cards;
mod chains;
mod entering;
mod groups;
mod hits;
mod hold;
mod holders;
pub mod image;
mod keys;
mod namespace;
mod place;
mod plain;
mod references;
mod removed;
mod shown;
mod slices;
mod slower;
mod speculation;
mod stats;
mod stored;
mod streams;

pub use hits::{Hit, Hits};
pub use shown::{Reader, StreamState};
pub use stats::{Admissions, AsideStats, ClearCause, IndexStats, Origin, Removals, Skipped, StreamStats};

use cards::Card;
use place::{ChainId, Slot};
use shown::{SharedShown, Shown};
use slices::Desk;
use speculation::SpeculationCounts;
use streams::{StreamBlocks, Streams};

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
/// Most chains that a stream's holds are taken from at once, readers waiting: a few microseconds.
const CHAINS_AT_ONCE: usize = 32;
const BLOCK_KEY_BYTES: usize = size_of::<BlockKey>();

/// See the module's documentation.
#[derive(Debug)]
pub struct Index {
    hasher: KeyHasher,
    limits: IndexLimits,
    /// What lookups see.
    shown: SharedShown,
    reader: Reader,
    streams: Streams,
    /// Sum of the streams' engine hashes.
    references: usize,
    /// Sum of what the streams keep aside.
    aside_bytes: usize,
    /// Blocks ever kept aside.
    arrivals: u64,
    /// As last told.
    now: Millis,
    stats: IndexStats,
    desk: Box<Desk>,
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
        let shown = SharedShown::new(hasher.clone(), limits.blocks_max(), limits.speculative_max);
        Self {
            reader: Reader::new(shown.clone()),
            hasher,
            limits,
            shown,
            streams: Streams::default(),
            references: 0,
            aside_bytes: 0,
            arrivals: 0,
            now: Millis(0),
            stats: IndexStats::default(),
            desk: Box::default(),
        }
    }

    /// Begins a stream of an engine that serves `model`. A stream that exists already is emptied.
    pub fn add_stream(&mut self, stream: StreamId, model: &str) {
        self.clear(stream, ClearCause::EndpointGone);
        self.end(stream);
        let slot = self.streams.add(stream, model);
        self.note(slot);
    }

    /// Forgets a stream. Whatever is applied to it later is ignored.
    pub fn remove_stream(&mut self, stream: StreamId) {
        self.clear(stream, ClearCause::EndpointGone);
        self.end(stream);
    }

    /// Ends a stream that holds nothing any more.
    fn end(&mut self, stream: StreamId) {
        if let Some(slot) = self.streams.slot(stream) {
            self.streams.remove(stream);
            self.note(slot);
        }
    }

    /// Notes how far the stream may be believed; streams that may not give no hits.
    pub fn set_trust(&mut self, stream: StreamId, trust: Trust) {
        let Some(slot) = self.streams.slot(stream) else { return };
        if let Some(stream) = self.streams.get_mut(slot) {
            stream.trust = trust;
        }
        self.note(slot);
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
                Event::Stored(stored) => self.store(slot, stored, origin),
                Event::Removed(removed) => self.remove(slot, removed),
                Event::Cleared => {
                    self.clear(stream, ClearCause::EngineCleared);
                    emptied = true;
                }
            }
        }
        if !self.streams.get(slot).is_some_and(StreamBlocks::is_plain) {
            self.note(slot);
        }
        emptied
    }

    /// Forgets everything that a stream holds; the stream goes on. An engine that emptied its cache did not empty its
    /// slower media.
    pub fn clear(&mut self, id: StreamId, cause: ClearCause) {
        let Some(slot) = self.streams.slot(id) else { return };
        self.streams.note_shown(slot, Card::Emptying);
        let mut shown = self.shown.write();
        let Shown { speculations, chains, cards, .. } = &mut *shown;
        cards.put(slot, Card::Emptying);
        speculations.drop_stream(slot, chains);
        drop(shown);
        if cause != ClearCause::EngineCleared {
            self.clear_slower(slot);
        }
        let Some(stream) = self.streams.get_mut(slot) else { return };
        drop_holds(&self.shown, stream.pool.chains(), slot);
        self.stats.removals.count_clear(cause, count(stream.pool.blocks));
        self.references = self.references.saturating_sub(stream.pool.len());
        self.aside_bytes = self.aside_bytes.saturating_sub(stream.aside.bytes());
        stream.reset(cause);
        self.note(slot);
    }

    fn clear_slower(&mut self, slot: Slot) {
        let Some(slower) = self.streams.get_mut(slot).and_then(|stream| stream.slower.as_mut()) else {
            return;
        };
        let own = slower.slot;
        drop_holds(&self.shown, slower.pool.chains(), own);
        self.stats.removals.slower += count(slower.pool.blocks);
        self.references = self.references.saturating_sub(slower.pool.len());
        self.streams.end_slower(slot);
        self.note(own);
    }

    /// Makes sure that the stream can hold blocks of slower media.
    fn begin_slower(&mut self, slot: Slot) {
        if let Some(own) = self.streams.begin_slower(slot) {
            self.note(own);
        }
    }

    /// Takes `tokens` for the stream's block size until an event tells it, so that what a pick will bring into an empty
    /// cache can be expected. A wrong guess is forgotten with all that was expected by it; 0: no guess.
    pub fn guess_block_size(&mut self, stream: StreamId, tokens: u32) {
        let Some(slot) = self.streams.slot(stream) else { return };
        let guess = NonZeroU32::new(tokens).and_then(|size| Layout::new(size, 0));
        if let Some(stream) = self.streams.get_mut(slot) {
            stream.guess = guess;
        }
        self.note(slot);
    }

    /// Lets lookups know of anything that changed of what they read a stream by.
    fn note(&mut self, slot: Slot) {
        let card = self.streams.card(slot);
        if !self.streams.note_shown(slot, card) {
            return;
        }
        let mut shown = self.shown.write();
        let Shown { speculations, chains, cards, .. } = &mut *shown;
        let layout = |card: Card| card.stream().and_then(|stream| stream.layout);
        let before = layout(cards.get(slot));
        cards.put(slot, card);
        if before.is_some_and(|before| layout(card) != Some(before)) {
            // Expected by another layout than its blocks have: nothing will ever come of it.
            speculations.drop_stream(slot, chains);
        }
    }

    /// For lookups beside the one who applies events.
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// See [`Reader::key_plan`].
    #[must_use]
    pub fn key_plan(&self) -> KeyPlan {
        self.reader.key_plan()
    }

    /// See [`Reader::hits`].
    pub fn hits(&self, keys: &PromptKeys, out: &mut Hits) {
        debug_assert!(self.is_noted(), "what lookups go by is noted");
        self.reader.hits(keys, out);
    }

    /// Whether nothing that lookups go by changed without being noted.
    fn is_noted(&self) -> bool {
        let shown = self.shown.read();
        self.streams.all().all(|slot| shown.cards.get(slot) == self.streams.card(slot))
    }

    /// See [`Reader::speculate`].
    pub fn speculate(&mut self, stream: StreamId, keys: &PromptKeys, expires_at: Millis) {
        self.reader.speculate(stream, keys, expires_at);
    }

    /// Drops what has a time, and its time is over: speculative blocks, and copies in media without removals. Also tells
    /// the index the time, and goes on with what was too much for once, so it should be called every few seconds at least.
    pub fn expire(&mut self, now: Millis) {
        self.now = self.now.max(now);
        while self.shown.write().expire(now) {}
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
        let shown = self.shown.read();
        let SpeculationCounts { first, cut, expired } = shown.speculations.counts();
        IndexStats {
            blocks: shown.chains.blocks(),
            references: self.references,
            streams: self.streams.len(),
            speculative_blocks: shown.speculations.blocks(),
            admissions: Admissions { speculative: first, ..self.stats.admissions },
            removals: Removals { expired, ..self.stats.removals },
            skipped: Skipped { speculative_capacity: cut, ..self.stats.skipped },
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

/// Forgets what is held by `slot` of these chains. One may come more than once.
fn drop_holds(shown: &SharedShown, chains: impl Iterator<Item = ChainId>, slot: Slot) {
    let mut dropped = None;
    let mut others = chains.filter(|chain| dropped.replace(*chain) != Some(*chain)).peekable();
    while others.peek().is_some() {
        let mut shown = shown.write();
        others.by_ref().take(CHAINS_AT_ONCE).for_each(|chain| shown.chains.drop_hold(chain, slot));
    }
}

/// `usize` to a counter.
fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
