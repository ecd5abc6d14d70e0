//! What lookups see, behind a lock of its own that is held for a few blocks at a time; and who looks.
//!
//! Everything else that an event costs (hashing its tokens, finding what the engine's hashes stand for, counting copies)
//! is the writer's alone and is done outside this lock. `docs/decisions/0011-lookups-beside-events.md` has the reasons.

use std::hint::spin_loop;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::key::{KeyHasher, Namespace};
use crate::prompt_keys::{KeyPlan, PromptKeys};
use crate::stream::{Millis, StreamId, Trust};

use super::cards::Cards;
use super::chains::Chains;
use super::hits::{self, Hits};
use super::place::Place;
use super::speculation::Speculations;

/// Tries for the lock before a writer queues for it, which would keep further readers out until it had its turn: some
/// twenty microseconds.
const WRITE_TRIES: u32 = 256;

/// Most speculations whose end is made at once, readers waiting: a few microseconds.
const EXPIRED_AT_ONCE: usize = 8;

/// Most blocks that are speculated on at once, readers waiting: a few microseconds.
const SPECULATED_AT_ONCE: usize = 64;

#[derive(Debug)]
pub(super) struct Shown {
    hasher: KeyHasher,
    pub(super) chains: Chains,
    pub(super) cards: Cards,
    pub(super) speculations: Speculations,
}

/// Shared between the one who applies events and those who look.
///
/// Between two holds of the lock for writing, a place stays what it is only while a stream holds or expects its block: so
/// nothing else may be carried over.
#[derive(Clone, Debug)]
pub(super) struct SharedShown(Arc<RwLock<Shown>>);

/// Looks prompts up beside the [`Index`](super::Index) that events are applied to. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reader {
    shown: SharedShown,
}

/// A speculation that is being made.
#[derive(Clone, Copy)]
struct Speculating<'a> {
    stream: StreamId,
    keys: &'a PromptKeys,
    until: Millis,
    /// Blocks done.
    blocks: usize,
    /// The place of the last of them.
    after: Option<Place>,
}

/// What decisions need to know of a stream besides its hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamState {
    pub trust: Trust,
    /// Tokens per block; `None`: neither told nor guessed.
    pub block_size: Option<u32>,
    /// Its events have told the block size.
    pub has_told: bool,
}

// === impl Shown ===

impl Shown {
    /// Drops some of the speculations whose time is over. Returns whether there may be more.
    pub(super) fn expire(&mut self, now: Millis) -> bool {
        (0..EXPIRED_AT_ONCE).all(|_| self.speculations.expire_one(now, &mut self.chains))
    }

    /// Takes the next step of a speculation. Returns what is left of it.
    fn speculate<'a>(&mut self, step: Speculating<'a>) -> Option<Speculating<'a>> {
        let slot = self.cards.slot(step.stream)?;
        let layout = self.cards.stream(slot)?.layout?;
        let keys = step.keys.of_layout(layout);
        let (done, left) = keys.split_at_checked(step.blocks)?;
        // What the stream held may have been dropped since the last step, and its places be others' now.
        if step.after.and_then(|after| self.chains.key(after)) != done.last().copied() {
            return None;
        }
        let (blocks, behind) = left.split_at(left.len().min(SPECULATED_AT_ONCE));
        let Speculating { after, until, .. } = step;
        let after = self.speculations.add(slot, after, blocks, behind.len(), until, &mut self.chains)?;
        let step = Speculating { after: Some(after), blocks: step.blocks + blocks.len(), ..step };
        (!behind.is_empty()).then_some(step)
    }
}

// === impl SharedShown ===

impl SharedShown {
    pub(super) fn new(hasher: KeyHasher, blocks_max: usize, speculative_max: usize) -> Self {
        Self(Arc::new(RwLock::new(Shown {
            hasher,
            chains: Chains::new(blocks_max),
            cards: Cards::default(),
            speculations: Speculations::new(speculative_max),
        })))
    }

    /// Shows from now on what `other` showed, to all who look.
    pub(super) fn show(&self, other: &Self) {
        let mut others = other.write();
        std::mem::swap(&mut *self.write(), &mut *others);
    }

    #[inline]
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Shown> {
        self.0.read()
    }

    /// For as few steps as can be.
    #[inline]
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Shown> {
        for _ in 0..WRITE_TRIES {
            if let Some(guard) = self.0.try_write() {
                return guard;
            }
            spin_loop();
        }
        self.0.write()
    }
}

// === impl Reader ===

impl Reader {
    pub(super) fn new(shown: SharedShown) -> Self {
        Self { shown }
    }

    /// How to make the keys of prompts now: with every layout of blocks that a stream has shown, or is guessed to have.
    #[must_use]
    pub fn key_plan(&self) -> KeyPlan {
        let shown = self.shown.read();
        let mut layouts: Vec<_> = shown.cards.streams().filter_map(|stream| stream.layout).collect();
        let hasher = shown.hasher.clone();
        drop(shown);
        layouts.sort_unstable();
        layouts.dedup();
        KeyPlan { hasher, layouts }
    }

    /// Key of a fixed text: equal where block keys are made with the same secret, and tells nothing of it.
    #[must_use]
    pub fn secret_check(&self) -> u64 {
        let hasher = self.shown.read().hasher.clone();
        hasher.root(&Namespace { model: "warmpath peers", lora: None, salt: None }).0
    }

    /// Leading tokens of the prompt that each scored stream holds, at most all but the last token, in whole blocks.
    /// Streams that hold none are not listed. `out` is overwritten; reusing it saves its allocations.
    pub fn hits(&self, keys: &PromptKeys, out: &mut Hits) {
        let shown = self.shown.read();
        hits::find(&shown.chains, &shown.cards, keys, out);
    }

    /// Counts the prompt's whole blocks as held by `stream` until `expires_at`, where they are not held already: an
    /// endpoint that was just picked will have them soon. Does nothing for a stream whose block size is neither known nor
    /// guessed.
    pub fn speculate(&self, stream: StreamId, keys: &PromptKeys, expires_at: Millis) {
        let mut next = Some(Speculating { stream, keys, until: expires_at, blocks: 0, after: None });
        while let Some(step) = next {
            next = self.shown.write().speculate(step);
        }
    }

    /// What is known of the stream; `None` where it does not exist.
    #[must_use]
    pub fn stream(&self, stream: StreamId) -> Option<StreamState> {
        let shown = self.shown.read();
        let card = shown.cards.slot(stream).and_then(|slot| shown.cards.stream(slot))?;
        let block_size = card.layout.map(|layout| layout.size());
        Some(StreamState { trust: card.trust, block_size, has_told: card.has_told })
    }
}
