//! What is found under keys, within a number of bytes that no tenant can take from the others.
//!
//! Entries belong to shares: one for all requests without a salt, and [`SALTED_SHARES`] over which salts are spread. The
//! unsalted share weighs as much as all the others together. When the store is full, the share with the most bytes for
//! its weight loses entries until there is room. So a share that uses at most its part of the limit (half of it for the
//! unsalted one, 1/128 for each other) never loses an entry because of the others, and what the others leave unused is
//! anybody's.
//!
//! Inside a share the oldest entry goes first, but for those found since they were last spared (the clock, or second
//! chance, algorithm): a stream of prompts that are never seen again passes by those that are used.
//!
//! The store is split in shards, each with its part of the limit and its own lock. Finding takes the lock shared, so
//! requests wait only while another one inserts into the same shard. Keys are as good as random, so the shards fill
//! evenly and what is said above of the whole holds for each of them.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use super::chain::Key;

/// Enough that two of some ten threads seldom meet.
const SHARDS: usize = 64;

/// Shares for requests with a salt. Two tenants in one share compete for it; with more shares each would be smaller.
const SALTED_SHARES: usize = 64;

/// What a salted share weighs; the unsalted one weighs as much as all of them.
const SALTED_WEIGHT: usize = 1;
const UNSALTED_WEIGHT: usize = SALTED_SHARES * SALTED_WEIGHT;

/// Entries that are spared at most before one is dropped, used or not: it bounds the time under the lock, to some ten
/// microseconds. Each was found since it was spared before, so on average far fewer are.
const SPARED_MAX: usize = 256;

/// Bytes that an entry takes in the map and in the order of its share, both of which are half empty at times, and in the
/// allocator's books.
const ENTRY_BYTES: usize = 160;

/// Entries for which the order of a share always has room.
const ORDER_MIN: usize = 4;

/// Which share an entry belongs to; below `1 + SALTED_SHARES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShareId(usize);

/// See the module's documentation.
pub(super) struct Store<V> {
    shards: Box<[RwLock<Shard<V>>]>,
    /// Bytes of each shard.
    limit: usize,
}

struct Shard<V> {
    entries: HashMap<Key, Entry<V>, BuildHasherDefault<KeyIsRandom>>,
    shares: Vec<Share>,
    bytes: usize,
    evicted: u64,
}

struct Entry<V> {
    value: Arc<V>,
    bytes: usize,
    /// Found since it was last spared.
    used: AtomicBool,
}

/// The entries of one share, those to drop next in front.
#[derive(Default)]
struct Share {
    order: VecDeque<Key>,
    bytes: usize,
}

/// What a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) entries: usize,
    pub(super) bytes: usize,
    /// Entries dropped for others since the start.
    pub(super) evicted: u64,
}

/// Keys are hashes already.
#[derive(Default)]
struct KeyIsRandom(u64);

// === impl ShareId ===

impl ShareId {
    pub(super) const UNSALTED: ShareId = ShareId(0);

    /// `random`: the same for the same salt, and not to be foreseen.
    pub(super) fn salted(random: Key) -> Self {
        let [low, ..] = random.0.to_le_bytes();
        ShareId(1 + usize::from(low) % SALTED_SHARES)
    }

    fn weight(self) -> usize {
        if self == Self::UNSALTED { UNSALTED_WEIGHT } else { SALTED_WEIGHT }
    }
}

// === impl Store ===

impl<V> Store<V> {
    /// Holds at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        let shards = std::iter::repeat_with(|| RwLock::new(Shard::new())).take(SHARDS).collect();
        Self { shards, limit: limit / SHARDS }
    }

    pub(super) fn find(&self, key: Key) -> Option<Arc<V>> {
        let shard = self.shard(key)?.read();
        let entry = shard.entries.get(&key)?;
        // Most entries of a busy store are marked already; a write would take the cache line from other cores.
        if !entry.used.load(Ordering::Relaxed) {
            entry.used.store(true, Ordering::Relaxed);
        }
        Some(entry.value.clone())
    }

    /// `bytes`: what `value` takes, with all that it owns. Does nothing where there is an entry already, or where the
    /// value is larger than a shard.
    pub(super) fn insert(&self, key: Key, share: ShareId, value: Arc<V>, bytes: usize) {
        let bytes = bytes.saturating_add(ENTRY_BYTES);
        if bytes > self.limit {
            return;
        }
        let Some(shard) = self.shard(key) else { return };
        let mut dropped = Vec::new();
        let mut shard = shard.write();
        if shard.entries.contains_key(&key) {
            return;
        }
        while shard.bytes.saturating_add(bytes) > self.limit {
            let Some(entry) = shard.evict() else { return };
            dropped.push(entry);
        }
        shard.add(key, share, Entry { value, bytes, used: AtomicBool::new(false) });
        drop(shard);
        // Freed outside of the lock.
        drop(dropped);
    }

    pub(super) fn usage(&self) -> Usage {
        self.shards.iter().fold(Usage::default(), |sum, shard| {
            let shard = shard.read();
            Usage {
                entries: sum.entries + shard.entries.len(),
                bytes: sum.bytes + shard.bytes,
                evicted: sum.evicted + shard.evicted,
            }
        })
    }

    fn shard(&self, key: Key) -> Option<&RwLock<Shard<V>>> {
        // The map inside uses the low bits.
        let [.., high] = key.0.to_le_bytes();
        self.shards.get(usize::from(high) % SHARDS)
    }
}

#[cfg(test)]
impl<V> Store<V> {
    /// Drops the entries whose number, in an order of chance, says so.
    pub(super) fn drop_some(&self, goes: impl Fn(usize) -> bool) {
        let mut number = 0;
        for shard in &self.shards {
            let mut shard = shard.write();
            for _ in 0..shard.entries.len() {
                number += 1;
                if goes(number) {
                    shard.evict();
                }
            }
        }
    }
}

// === impl Shard ===

impl<V> Shard<V> {
    fn new() -> Self {
        let shares = std::iter::repeat_with(Share::default).take(1 + SALTED_SHARES).collect();
        Self { entries: HashMap::default(), shares, bytes: 0, evicted: 0 }
    }

    fn add(&mut self, key: Key, share: ShareId, entry: Entry<V>) {
        let Some(share) = self.shares.get_mut(share.0) else { return };
        share.order.push_back(key);
        share.bytes += entry.bytes;
        self.bytes += entry.bytes;
        self.entries.insert(key, entry);
    }

    /// Takes out the entry that is to go first; `None`: there is none.
    fn evict(&mut self) -> Option<Entry<V>> {
        // Shares are compared by bytes per weight, without a division.
        let heaviest = |(place, share): &(usize, &mut Share)| {
            share.bytes.saturating_mul(UNSALTED_WEIGHT / ShareId(*place).weight())
        };
        let (_, share) = self.shares.iter_mut().enumerate().max_by_key(heaviest)?;
        for _ in 0..SPARED_MAX {
            let used =
                |key| self.entries.get(key).is_some_and(|entry| entry.used.swap(false, Ordering::Relaxed));
            match share.order.front() {
                Some(key) if used(key) => share.order.rotate_left(1),
                _ => break,
            }
        }
        let entry = self.entries.remove(&share.order.pop_front()?)?;
        share.give_back();
        share.bytes = share.bytes.saturating_sub(entry.bytes);
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        self.evicted += 1;
        Some(entry)
    }
}

// === impl Share ===

impl Share {
    /// Returns the memory of an order that was far longer: shares that had the store to themselves, one after the other,
    /// would take it several times over.
    fn give_back(&mut self) {
        let len = self.order.len().max(ORDER_MIN);
        if self.order.capacity() / 4 > len {
            self.order.shrink_to(2 * len);
        }
    }
}

// === impl KeyIsRandom ===

impl Hasher for KeyIsRandom {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Not reached for keys, which are one u128.
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u128(&mut self, key: u128) {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is as random as the whole")]
        let low = key as u64;
        self.0 = low;
    }
}

#[cfg(test)]
mod tests;
