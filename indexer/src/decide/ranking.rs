//! The candidates of a round in their order.

use warmpath_core::limits::CANDIDATES_MAX;
use warmpath_core::rank::{Candidate, Landmark, Ranked};

use super::candidates::Seat;

/// Candidates and their order.
pub(super) struct Ranking {
    pub(super) seats: Vec<Seat>,
    pub(super) candidates: Vec<Candidate>,
    pub(super) ranked: Vec<Ranked>,
    /// The first block of the prompt that no candidate holds; None: nobody decides beside us, or it has no whole block.
    pub(super) unknown: Option<Landmark>,
}

// === impl Ranking ===

impl Ranking {
    /// All candidates, best first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&Seat, &Candidate, &Ranked)> {
        self.ranked.iter().filter_map(|ranked| {
            Some((self.seats.get(ranked.index)?, self.candidates.get(ranked.index)?, ranked))
        })
    }

    /// The best rank of each endpoint, best first, as many as a filter takes: a retry has to go elsewhere.
    pub(super) fn best(&self) -> Vec<(&Seat, &Candidate, &Ranked)> {
        let mut best: Vec<(&Seat, &Candidate, &Ranked)> = Vec::with_capacity(CANDIDATES_MAX);
        for (seat, candidate, ranked) in self.in_order() {
            if best.iter().all(|(taken, _, _)| taken.endpoint != seat.endpoint) {
                best.push((seat, candidate, ranked));
            }
            if best.len() == CANDIDATES_MAX {
                break;
            }
        }
        best
    }

    /// Tokens that the best holder of all has.
    pub(super) fn reachable_tokens(&self) -> u32 {
        self.candidates.iter().map(|candidate| candidate.cached_tokens).max().unwrap_or(0)
    }

    /// Moves an endpoint's ranks to the front; the order is otherwise kept.
    pub(super) fn put_first(&mut self, keeper: &str) {
        let seats = &self.seats;
        let is_other = |ranked: &Ranked| seats.get(ranked.index).is_none_or(|seat| *seat.endpoint != *keeper);
        self.ranked.sort_by_key(is_other);
    }
}
