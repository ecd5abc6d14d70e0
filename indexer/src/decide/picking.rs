//! Hot path: candidates → a ranking, and what the pick of its first puts on it.

use std::sync::atomic::Ordering;
use std::time::Instant;

use warmpath_core::rank::{Landmark, rank};
use warmpath_kv::{Hits, Millis};

use super::candidates::{Circumstances, choosable, gather, weighed};
use super::ranking::Ranking;
use super::round::Round;
use super::{Decider, Decision};
use crate::books::{Books, Expected, Placed};
use crate::fleet::{Endpoint, Heard};
use crate::ledger::DecisionId;

impl Decider {
    /// Looks up, ranks, reserves and speculates in one step, under the mutex of the books.
    pub(super) fn pick(&self, round: &Round<'_>) -> (Decision, Ranking) {
        let now = self.clock.now();
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let turn = self.turns.next(round.model.map(|model| model.index), round.choice.policy);
        let id = self.ids.next();

        let mut books = self.books.lock();
        let ranking = self.rank(round, &books, turn, now);
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
                Ok(()) => {
                    books.note_pick(ranking.unknown, now);
                    reserved = Some(placed);
                }
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
        let ranking = self.rank(round, &self.books.lock(), turn, self.clock.now());
        (round.decision(DecisionId(0), &ranking, None), ranking)
    }

    /// Looks up what the candidates hold, and puts them in order.
    fn rank(&self, round: &Round<'_>, books: &Books, turn: u64, now: Millis) -> Ranking {
        let mut hits = Hits::default();
        if let Some(keys) = round.basis.keys() {
            let begun = Instant::now();
            self.cached.hits(keys, &mut hits);
            self.metrics.lookup.observe(begun.elapsed().as_secs_f64());
        }
        let policy = &self.settings.policy;
        let cached = |place| weighed(&hits, place, policy.slower_media);
        // While the prompt was measured, another request may have become the one that tries an endpoint anew.
        let endpoints = choosable(round.endpoints, round.keeper.as_deref(), now);
        let unknown = self.unknown(round, &endpoints, &hits, books);
        let home = unknown.and_then(|unknown| {
            let keys = round.basis.keys()?;
            let home =
                books.home(unknown, |block| keys.first_behind(block.behind) == Some(block.key), now)?;
            Some((home, round.demand.prompt_tokens))
        });
        let circumstances = Circumstances {
            ledger: books.ledger(),
            now,
            beat_ms: self.settings.beat_ms,
            slow_start_ms: policy.slow_start_ms,
            zone: policy.zone.as_deref(),
            other_zone_tokens: policy.other_zone_tokens,
            home,
        };
        let (seats, candidates) = gather(&endpoints, cached, circumstances);
        let ranked = rank(round.choice.policy, round.demand, &candidates, turn, &mut rand::random);
        let mut ranking = Ranking { seats, candidates, ranked, unknown };
        if let Some(keeper) = &round.keeper {
            ranking.put_first(keeper);
        }
        ranking
    }

    /// The first block of the prompt that no candidate holds. None: there is nobody to agree with on its home.
    fn unknown(
        &self,
        round: &Round<'_>,
        endpoints: &[&Endpoint],
        hits: &Hits,
        books: &Books,
    ) -> Option<Landmark> {
        let keys = round.basis.keys().filter(|_| books.has_followers())?;
        let places = endpoints.iter().flat_map(|endpoint| &endpoint.ranks).map(|rank| rank.place);
        let slower_media = self.settings.policy.slower_media;
        let behind = places.map(|place| weighed(hits, place, slower_media)).max().unwrap_or(0);
        Some(Landmark { behind, key: keys.first_behind(behind)? })
    }
}
