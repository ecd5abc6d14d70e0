//! What is told of a decision: its receipt, and counts.

use super::metrics::{ChoiceLabels, DecisionLabels};
use super::ranking::Ranking;
use super::round::Round;
use super::{Decider, Decision, Purpose};
use crate::receipts::{self, Considered, Fate, Receipt};

impl Decider {
    /// Everything that a decision went by.
    pub(super) fn receipt(
        &self,
        round: &Round<'_>,
        decision: &Decision,
        ranking: &Ranking,
        purpose: Purpose,
    ) -> Receipt {
        let considered = ranking.in_order().take(receipts::CANDIDATES_MAX);
        let considered = considered.map(|(seat, candidate, ranked)| {
            let trust = self.cached.stream(seat.place).map(|stream| stream.trust.name());
            Considered::new(seat.endpoint.clone(), seat.rank, trust, candidate, ranked)
        });
        Receipt {
            decision: (purpose == Purpose::Decide).then(|| format!("{:016x}", decision.id.0)),
            at_unix_ms: receipts::unix_ms(),
            model: round.model.map(|model| self.registry.name(model.index).to_string()).unwrap_or_default(),
            policy: decision.policy,
            policy_from: round.choice.from.name(),
            split_percent: round.choice.from.percent(),
            weights: round.choice.policy,
            outcome: decision.verdict.outcome(),
            reason: decision.verdict.reason(),
            prompt_tokens: decision.prompt_tokens,
            further_tokens: round.demand.further_tokens,
            reachable_tokens: decision.reachable_tokens,
            candidates: considered.collect(),
            candidates_considered: ranking.candidates.len(),
            reserved: decision.reserved.clone(),
            fate: Fate::default(),
        }
    }

    pub(super) fn count(&self, decision: &Decision) {
        let labels = DecisionLabels {
            policy: decision.policy,
            outcome: decision.verdict.outcome(),
            reason: decision.verdict.reason(),
        };
        self.metrics.decisions.get_or_create(&labels).inc();
        if decision.verdict.is_scored() {
            let selected = decision.picks.first().map_or(0, |pick| pick.candidate.cached_tokens);
            self.metrics.prompt_tokens.inc_by(decision.prompt_tokens.into());
            self.metrics.reachable_tokens.inc_by(decision.reachable_tokens.into());
            self.metrics.selected_tokens.inc_by(selected.into());
            let choice = match (decision.reachable_tokens, selected) {
                (0, _) => "cold",
                (reachable, selected) if selected < reachable => "spill",
                _ => "holder",
            };
            let labels = ChoiceLabels { policy: decision.policy, choice };
            self.metrics.choices.get_or_create(&labels).inc();
        }
    }
}
