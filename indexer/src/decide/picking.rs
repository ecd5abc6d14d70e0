//! Hot path: candidates → a ranking, and what the pick of its first puts on it.

use std::sync::atomic::Ordering;
use std::time::Instant;

use warmpath_core::rank::{Candidate, Ranked, rank};
use warmpath_kv::{Hits, Millis};

use super::candidates::{Circumstances, Seat, choosable, gather, weighed};
use super::round::{Round, best_of_each_endpoint, put_first};
use super::{Decider, Decision};
use crate::books::{Expected, Placed};
use crate::fleet::Heard;
use crate::ledger::{DecisionId, Ledger};

/// Candidates and their order.
pub(super) struct Ranking {
    pub(super) seats: Vec<Seat>,
    pub(super) candidates: Vec<Candidate>,
    pub(super) ranked: Vec<Ranked>,
}

impl Decider {
    /// Looks up, ranks, reserves and speculates in one step, under the mutex of the books.
    pub(super) fn pick(&self, round: &Round<'_>) -> (Decision, Ranking) {
        let now = self.clock.now();
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let turn = self.turns.next(round.model.map(|model| model.index), round.choice.policy);
        let id = self.ids.next();

        let mut books = self.books.lock();
        let ranking = self.rank(round, books.ledger(), turn, now);
        let best = ranking.best();
        let mut reserved = None;
        if let Some((seat, candidate, ranked)) = best.first() {
            let placed = Placed {
                endpoint: seat.endpoint.clone(),
                rank: seat.rank.unwrap_or(0),
                queued_tokens: ranked.uncached_tokens,
                sequences: round.sequences,
                lease_ms: self.settings.reservation_ms,
                expected: round
                    .basis
                    .keys()
                    .filter(|_| books.has_followers())
                    .map(|keys| Expected { keys: keys.clone(), for_ms: self.settings.speculative_ms }),
            };
            // Taken for work that the engine's cache spared it, tokens would make it look fast.
            let knows = round.is_size_known() && self.is_cache_known(seat.place);
            let work_tokens = knows.then(|| candidate.queued_tokens.saturating_add(ranked.uncached_tokens));
            let forecast = round.forecast(&best, ranking.reachable_tokens(), work_tokens);
            match books.reserve(id, seat.place, placed.clone(), forecast, now) {
                Ok(()) => reserved = Some(placed),
                Err(error) => {
                    self.metrics.unreserved.inc();
                    tracing::debug!(%error, "a decision is not counted");
                }
            }
            let cold = (ranking.reachable_tokens() == 0).then_some(number + 1);
            seat.meter.note_pick(ranked.uncached_tokens, cold, now);
            if let Some(picked) = round.endpoints.iter().find(|endpoint| endpoint.name == seat.endpoint) {
                picked.meter.hear(Heard::Picked, self.settings.outliers, now);
            }
            if let Some(keys) = round.basis.keys() {
                let expires_at = now.plus(self.settings.speculative_ms);
                self.cached.speculate(seat.place, keys, expires_at);
            }
        }
        drop(books);
        (round.decision(id, &ranking, reserved), ranking)
    }

    /// What [`Self::pick`] would come to, without doing any of it.
    pub(super) fn weigh(&self, round: &Round<'_>) -> (Decision, Ranking) {
        let turn = self.turns.peek(round.model.map(|model| model.index), round.choice.policy);
        let ranking = self.rank(round, self.books.lock().ledger(), turn, self.clock.now());
        (round.decision(DecisionId(0), &ranking, None), ranking)
    }

    /// Looks up what the candidates hold, and puts them in order.
    fn rank(&self, round: &Round<'_>, ledger: &Ledger, turn: u64, now: Millis) -> Ranking {
        let mut hits = Hits::default();
        if let Some(keys) = round.basis.keys() {
            let begun = Instant::now();
            self.cached.hits(keys, &mut hits);
            self.metrics.lookup.observe(begun.elapsed().as_secs_f64());
        }
        let policy = &self.settings.policy;
        let cached = |place| weighed(&hits, place, policy.slower_media);
        let circumstances = Circumstances {
            ledger,
            now,
            beat_ms: self.settings.beat_ms,
            slow_start_ms: policy.slow_start_ms,
            zone: policy.zone.as_deref(),
            other_zone_tokens: policy.other_zone_tokens,
        };
        // While the prompt was measured, another request may have become the one that tries an endpoint anew.
        let endpoints = choosable(round.endpoints, round.keeper.as_deref(), now);
        let (seats, candidates) = gather(&endpoints, cached, circumstances);
        let mut ranked = rank(round.choice.policy, round.demand, &candidates, turn, &mut rand::random);
        if let Some(keeper) = &round.keeper {
            put_first(keeper, &mut ranked, &seats);
        }
        Ranking { seats, candidates, ranked }
    }
}

// === impl Ranking ===

impl Ranking {
    /// All candidates, best first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&Seat, &Candidate, &Ranked)> {
        self.ranked.iter().filter_map(|ranked| {
            Some((self.seats.get(ranked.index)?, self.candidates.get(ranked.index)?, ranked))
        })
    }

    /// Those that a gateway is told of.
    pub(super) fn best(&self) -> Vec<(&Seat, &Candidate, &Ranked)> {
        best_of_each_endpoint(&self.ranked, &self.seats, &self.candidates)
    }

    /// Tokens that the best holder of all has.
    pub(super) fn reachable_tokens(&self) -> u32 {
        self.candidates.iter().map(|candidate| candidate.cached_tokens).max().unwrap_or(0)
    }
}
