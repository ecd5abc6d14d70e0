//! How much of what replicas evict is asked for again: what an eviction costs.

use std::time::Duration;

use hashbrown::HashMap;
use warmpath_kv::event::{Batch, Event};

/// Time in which counts lose half of their weight.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// Evicted blocks, and how many of them were wanted again.
#[derive(Debug, Default)]
pub(crate) struct Regret {
    /// Holders of each block that any replica has or had.
    holders: HashMap<u64, u32>,
    evicted: Fading,
    wanted: Fading,
}

#[derive(Clone, Copy, Debug, Default)]
struct Fading {
    value: f64,
    at: Duration,
}

// === impl Regret ===

impl Regret {
    /// Notes what a batch stored and removed.
    pub(crate) fn apply(&mut self, batch: &Batch, now: Duration) {
        for event in &batch.events {
            match event {
                Event::Stored(stored) => {
                    stored.hashes.iter().for_each(|hash| *self.holders.entry(hash.0).or_default() += 1);
                }
                Event::Removed(removed) => {
                    for hash in &removed.hashes {
                        let holders = self.holders.entry(hash.0).or_default();
                        *holders = holders.saturating_sub(1);
                    }
                    self.evicted.add(removed.hashes.len() as f64, now);
                }
                Event::Cleared => {}
            }
        }
    }

    /// Notes a prompt of which `held` blocks are held by somebody.
    pub(crate) fn ask(&mut self, chain: &[u64], held: usize, now: Duration) {
        let gone = chain.iter().skip(held).take_while(|id| self.holders.get(*id) == Some(&0)).count();
        self.wanted.add(gone as f64, now);
    }

    /// Wanted again ÷ evicted, at most 1.
    pub(crate) fn share(&self, now: Duration) -> f64 {
        let evicted = self.evicted.at(now);
        if evicted < 1.0 { 0.0 } else { (self.wanted.at(now) / evicted).min(1.0) }
    }
}

// === impl Fading ===

impl Fading {
    fn at(self, now: Duration) -> f64 {
        let age = now.saturating_sub(self.at).as_secs_f64();
        self.value * (-age / HALF_LIFE.as_secs_f64()).exp2()
    }

    fn add(&mut self, more: f64, now: Duration) {
        *self = Self { value: self.at(now) + more, at: now };
    }
}
