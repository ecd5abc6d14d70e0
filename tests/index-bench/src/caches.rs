//! The caches of some workers: which blocks a request finds, brings in and drives out. Least recently used blocks go
//! first, and of one prompt the last ones, as in the engines.

use std::collections::{HashMap, VecDeque};

use crate::block::{Block, Change, EVENT_BLOCKS_MAX, stores};

pub(crate) struct Caches {
    workers: Vec<Cache>,
    next: usize,
}

/// What a request makes of the caches.
pub(crate) struct Turn {
    /// Leading blocks held before, by worker; sorted, none of them 0.
    pub(crate) held: Vec<(u32, u32)>,
    pub(crate) stores: Vec<Change>,
    pub(crate) removals: Vec<Change>,
}

struct Cache {
    /// When each block held was last used, by the engine's hash.
    used: HashMap<u64, u64>,
    /// Uses, oldest first; only the last one of a block counts.
    uses: VecDeque<(u64, u64)>,
    clock: u64,
    /// Most blocks.
    capacity: usize,
}

// === impl Caches ===

impl Caches {
    /// `capacity`: blocks of each.
    pub(crate) fn new(workers: usize, capacity: usize) -> Self {
        let cache = || Cache { used: HashMap::new(), uses: VecDeque::new(), clock: 0, capacity };
        Self { workers: (0..workers).map(|_| cache()).collect(), next: 0 }
    }

    /// Blocks held by all workers.
    pub(crate) fn blocks(&self) -> usize {
        self.workers.iter().map(|cache| cache.used.len()).sum()
    }

    /// The next worker computes the prompt. `is_told`: what all of them hold is asked for.
    pub(crate) fn serve(&mut self, prompt: &[Block], is_told: bool) -> Turn {
        let depth = |(worker, cache): (usize, &Cache)| (worker as u32, cache.depth(prompt) as u32);
        let told = self.workers.iter().enumerate().filter(|_| is_told);
        let held = told.map(depth).filter(|(_, depth)| *depth > 0).collect();
        let place = self.next;
        self.next = (place + 1) % self.workers.len();
        let (worker, cache) = (place as u32, &mut self.workers[place]);
        let (known, new) = prompt.split_at(cache.depth(prompt));
        let stores = stores(worker, known.last().map(|block| block.hash), new, EVENT_BLOCKS_MAX);
        let hashes = cache.take(prompt);
        let removals = if hashes.is_empty() { Vec::new() } else { vec![Change::Remove { worker, hashes }] };
        Turn { held, stores, removals }
    }
}

// === impl Cache ===

impl Cache {
    /// Leading blocks held.
    fn depth(&self, prompt: &[Block]) -> usize {
        prompt.iter().take_while(|block| self.used.contains_key(&block.hash)).count()
    }

    /// Uses all blocks of the prompt. Returns what is driven out.
    fn take(&mut self, prompt: &[Block]) -> Vec<u64> {
        for block in prompt.iter().rev() {
            self.clock += 1;
            self.used.insert(block.hash, self.clock);
            self.uses.push_back((self.clock, block.hash));
        }
        let mut evicted = Vec::new();
        while self.used.len() > self.capacity
            && let Some((clock, hash)) = self.uses.pop_front()
        {
            if self.used.get(&hash) == Some(&clock) {
                self.used.remove(&hash);
                evicted.push(hash);
            }
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::chain;

    #[test]
    fn caches_are_bounded_and_hold_whole_beginnings() {
        let shared = chain(None, 0..4);
        let mut caches = Caches::new(2, 20);
        let mut held: Vec<std::collections::HashSet<u64>> = vec![Default::default(); 2];
        for request in 0..50_u64 {
            let own = chain(shared.last().copied(), 100 * request..100 * request + 5);
            let prompt = [&shared[..], &own].concat();
            let turn = caches.serve(&prompt, true);
            let depth =
                |worker: usize| prompt.iter().take_while(|block| held[worker].contains(&block.hash)).count();
            let expected = (0..2).map(|worker| (worker as u32, depth(worker) as u32));
            assert_eq!(turn.held, expected.filter(|(_, depth)| *depth > 0).collect::<Vec<_>>());
            for change in turn.stores.iter().chain(&turn.removals) {
                match change {
                    Change::Store { worker, parent, blocks } => {
                        let held = &mut held[*worker as usize];
                        assert!(parent.is_none_or(|parent| held.contains(&parent)));
                        assert!(blocks.iter().all(|block| held.insert(block.hash)), "stored once");
                    }
                    Change::Remove { worker, hashes } => {
                        assert!(hashes.iter().all(|hash| held[*worker as usize].remove(hash)));
                    }
                }
            }
            assert!(held.iter().all(|held| held.len() <= 20));
            assert!(request < 2 || turn.held.len() == 2, "the shared beginning is never driven out");
        }
        assert_eq!(caches.blocks(), held.iter().map(|held| held.len()).sum::<usize>());
    }
}
