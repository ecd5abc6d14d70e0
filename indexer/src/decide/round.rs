//! What one pick goes by, and what it comes to before anything is noted.

use std::sync::Arc;

use warmpath_core::rank::{Candidate, Demand, Ranked};
use warmpath_kv::PromptKeys;

use super::candidates::Seat;
use super::measure::{BYTES_PER_TOKEN, Measured};
use super::ranking::Ranking;
use super::split::Choice;
use super::{Decision, Pick, Verdict};
use crate::books::Placed;
use crate::fleet::Endpoint;
use crate::ledger::{DecisionId, Forecast};
use crate::models::LoadedModel;
use crate::receipts::Reserved;

/// What a ranking can go by.
pub(super) struct Basis {
    /// None: the prompt's tokens are not known.
    pub(super) measured: Option<Measured>,
    pub(super) verdict: Verdict,
    pub(super) block_tokens: u32,
}

/// Everything that one pick goes by.
pub(super) struct Round<'a> {
    pub(super) choice: Choice,
    pub(super) model: Option<LoadedModel>,
    pub(super) endpoints: &'a [&'a Endpoint],
    pub(super) basis: &'a Basis,
    pub(super) demand: Demand,
    pub(super) sequences: u32,
    /// Comes before all others, whatever their load: only it can answer.
    pub(super) keeper: Option<Arc<str>>,
}

// === impl Basis ===

impl Basis {
    /// The keys to look up; None: hits do not count.
    pub(super) fn keys(&self) -> Option<&Arc<PromptKeys>> {
        self.measured.as_ref().filter(|_| self.verdict.is_scored()).map(|measured| &measured.keys)
    }

    /// The request's size; estimated from its bytes where its tokens are not known.
    pub(super) fn demand(&self, estimated_bytes: u64, output_tokens: u64) -> Demand {
        let estimated = u32::try_from(estimated_bytes / BYTES_PER_TOKEN).unwrap_or(u32::MAX);
        let (prompt_tokens, further_tokens) = match &self.measured {
            // What follows the known beginning is estimated with the whole.
            Some(measured) if measured.cut_by.is_some() => (measured.prompt_tokens.max(estimated), 0),
            Some(measured) => (measured.prompt_tokens, measured.further_tokens),
            None => (estimated, 0),
        };
        Demand { prompt_tokens, further_tokens, output_tokens, tie_tokens: self.block_tokens }
    }
}

// === impl Round ===

impl Round<'_> {
    /// Whether all that the request makes an engine compute is known, but for what its cache holds.
    pub(super) fn is_size_known(&self) -> bool {
        self.basis.measured.as_ref().is_some_and(Measured::is_all_of_its_request)
    }

    /// What is predicted for each endpoint that may serve it.
    pub(super) fn forecast(
        &self,
        best: &[(&Seat, &Candidate, &Ranked)],
        reachable_tokens: u32,
        work_tokens: Option<u64>,
    ) -> Forecast {
        let measured = self.basis.measured.as_ref().filter(|measured| measured.is_all_of_its_request());
        let predicts = self.basis.verdict.is_scored() && measured.is_some();
        let cached = best.iter().map(|(seat, candidate, _)| (seat.place, candidate.cached_tokens));
        Forecast {
            model: self.model,
            policy: self.choice.policy.name(),
            cached_tokens: cached.filter(|_| predicts).collect(),
            prompt_tokens: measured
                .filter(|measured| measured.is_ours)
                .map(|measured| measured.prompt_tokens),
            work_tokens,
            size_tokens: measured.filter(|_| predicts).map_or(0, |measured| measured.prompt_tokens),
            reachable_tokens,
        }
    }

    /// What the ranking comes to.
    pub(super) fn decision(&self, id: DecisionId, ranking: &Ranking, placed: Option<Placed>) -> Decision {
        let pick = |(seat, candidate, ranked): (&Seat, &Candidate, &Ranked)| Pick {
            endpoint: seat.endpoint.clone(),
            rank: seat.rank,
            candidate: candidate.clone(),
            ranked: ranked.clone(),
        };
        Decision {
            id,
            picks: ranking.best().into_iter().map(pick).collect(),
            verdict: self.basis.verdict,
            prompt_tokens: self.basis.measured.as_ref().map_or(0, |measured| measured.prompt_tokens),
            reachable_tokens: ranking.reachable_tokens(),
            policy: self.choice.policy.name(),
            reserved: placed.map(|placed| Reserved {
                endpoint: placed.endpoint,
                rank: placed.rank,
                queued_tokens: placed.queued_tokens,
                sequences: placed.sequences,
                lease_ms: placed.lease_ms,
            }),
        }
    }
}
