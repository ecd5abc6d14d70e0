//! Blocks of one stream that were told of before the block they follow was: kept aside until that one is known.
//!
//! Events give a block by its tokens and the engine's hash of the block before it. Who joined late, or lost an event,
//! hears of blocks behind ones that it does not know; where in a prompt they stand is then unknown, and they count for
//! nothing. Here is what it takes to give them their place once their parent has one. Their copies are counted with the
//! pool's other hashes without a place ([`References`](super::references::References)).

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};

use crate::event::EngineHash;
use crate::key::{BlockKey, Extra, KeyHasher};

use super::place::SHRINK_BELOW;

/// What a block aside takes besides its tokens and extras: its link, twice a place in an order, and its copies. An
/// estimate, on the high side.
const BLOCK_BYTES: usize = 256;

/// Most removed hashes remembered per stream: more than a replica holds blocks, for a removal of each while something
/// is aside. 2 MiB.
const GONE_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Aside {
    links: HashMap<EngineHash, Link>,
    /// By parent, then by arrival.
    waiting: BTreeMap<(EngineHash, u64), EngineHash>,
    by_arrival: BTreeMap<u64, EngineHash>,
    bytes: usize,
    /// Hashes of which a full-attention group removed a copy while something was aside.
    gone: HashSet<EngineHash>,
    /// Blocks with a place, others behind which were too many to get theirs at once.
    postponed: Vec<EngineHash>,
    /// Arrivals up to this one are no witnesses: what has gone since them is not all known.
    forgot_at: u64,
}

/// A block behind another one that has no place yet.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) parent: EngineHash,
    pub(super) tokens: Box<[u32]>,
    pub(super) extras: Box<[Extra]>,
    /// Counts up over all streams.
    pub(super) arrival: u64,
    /// A copy of the block came to the main pool, so its parent was there.
    pub(super) is_witness: bool,
}

// === impl Aside ===

impl Aside {
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Blocks that there is room for before memory is taken.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.links.capacity()
    }

    /// Memory taken, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, hash: EngineHash) -> Option<&Link> {
        self.links.get(&hash)
    }

    /// A block aside has this parent.
    pub(super) fn is_awaited(&self, parent: EngineHash) -> bool {
        self.behind(parent).next().is_some()
    }

    /// A block aside shows that the engine held this one, which was not told of: what has gone since is known.
    pub(super) fn witnesses(&self, parent: EngineHash) -> bool {
        let is_witness = |hash| self.links.get(&hash).is_some_and(|link| link.is_witness);
        let mut behind = self.behind(parent).filter(|(arrival, _)| *arrival > self.forgot_at);
        !self.links.contains_key(&parent) && behind.any(|(_, hash)| is_witness(hash))
    }

    /// Notes that a block aside came to the main pool.
    pub(super) fn note_witness(&mut self, hash: EngineHash) {
        if let Some(link) = self.links.get_mut(&hash) {
            link.is_witness = true;
        }
    }

    /// Notes that a full-attention group removed a copy of the block.
    pub(super) fn note_gone(&mut self, hash: EngineHash, arrivals: u64) {
        if self.links.is_empty() {
            return;
        }
        if self.gone.len() >= GONE_MAX {
            self.gone = HashSet::new();
            self.forgot_at = arrivals;
        }
        self.gone.insert(hash);
    }

    /// A full-attention group removed the block while something was aside.
    pub(super) fn is_gone(&self, hash: EngineHash) -> bool {
        self.gone.contains(&hash)
    }

    /// The arrival of the block that has been aside for longest.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.by_arrival.keys().next().copied()
    }

    /// Keeps a block that is not aside yet.
    pub(super) fn keep(&mut self, hash: EngineHash, link: Link) {
        self.bytes += link.bytes();
        self.waiting.insert((link.parent, link.arrival), hash);
        self.by_arrival.insert(link.arrival, hash);
        self.links.insert(hash, link);
    }

    /// Takes out a block.
    pub(super) fn take(&mut self, hash: EngineHash) -> Option<Link> {
        let link = self.links.remove(&hash)?;
        self.bytes = self.bytes.saturating_sub(link.bytes());
        self.waiting.remove(&(link.parent, link.arrival));
        self.by_arrival.remove(&link.arrival);
        if self.links.is_empty() {
            *self = Self::default();
        } else if self.links.len() < self.links.capacity() / SHRINK_BELOW {
            self.links.shrink_to(self.links.len() * 2);
        }
        Some(link)
    }

    /// Takes out the first block with this parent.
    pub(super) fn take_behind(&mut self, parent: EngineHash) -> Option<(EngineHash, Link)> {
        let (_, hash) = self.behind(parent).next()?;
        self.take(hash).map(|link| (hash, link))
    }

    pub(super) fn postpone(&mut self, parent: EngineHash) {
        self.postponed.push(parent);
    }

    pub(super) fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    pub(super) fn take_postponed(&mut self) -> Option<EngineHash> {
        self.postponed.pop()
    }

    /// Takes out the block that has been aside for longest.
    pub(super) fn take_oldest(&mut self) -> Option<EngineHash> {
        let hash = *self.by_arrival.values().next()?;
        self.take(hash).map(|_| hash)
    }

    /// Forgets a block of which no copy is left, unless others wait behind it; then those before it that were kept for
    /// its sake only. `is_held`: copies of the block are left.
    pub(super) fn let_go(&mut self, hash: EngineHash, is_held: impl Fn(EngineHash) -> bool) {
        let mut hash = hash;
        while !is_held(hash)
            && !self.is_awaited(hash)
            && let Some(link) = self.take(hash)
        {
            hash = link.parent;
        }
    }

    /// Arrivals and hashes of the blocks with this parent.
    fn behind(&self, parent: EngineHash) -> impl Iterator<Item = (u64, EngineHash)> {
        self.waiting.range((parent, 0)..=(parent, u64::MAX)).map(|((_, arrival), hash)| (*arrival, *hash))
    }
}

// === impl Link ===

impl Link {
    pub(super) fn key(&self, hasher: &KeyHasher, parent: BlockKey) -> BlockKey {
        hasher.block(parent, &self.tokens, &self.extras)
    }

    fn bytes(&self) -> usize {
        let extras: usize = self.extras.iter().map(Extra::bytes).sum();
        BLOCK_BYTES + size_of_val(&*self.tokens) + extras
    }
}
