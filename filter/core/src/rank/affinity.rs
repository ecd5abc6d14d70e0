//! Policies that go by the longest prefix first.

use super::policy::Sticky;
use super::{Candidate, Demand, Figure, Fit};

/// Most cached tokens, then fewest sequences.
pub(super) fn longest(candidates: &[Candidate]) -> Vec<Figure> {
    candidates
        .iter()
        .map(|candidate| Figure::of(-f64::from(candidate.cached_tokens), candidate.load()))
        .collect()
}

/// Holders first, while the least busy of them is no further behind than the gate; by tokens ahead of the first token.
pub(super) fn sticky(sticky: Sticky, demand: Demand, candidates: &[Candidate], fits: &[Fit]) -> Vec<Figure> {
    let enough = sticky.share * f64::from(demand.prompt_tokens);
    let is_holder =
        |candidate: &Candidate| candidate.cached_tokens > 0 && f64::from(candidate.cached_tokens) >= enough;
    let least = |wanted: bool| {
        let group = candidates.iter().filter(|candidate| is_holder(candidate) == wanted);
        group.map(|candidate| candidate.queued_tokens).min()
    };
    let is_open = match (least(true), least(false)) {
        (Some(holders), Some(others)) => holders.saturating_sub(others) > sticky.gate_tokens,
        _ => true,
    };
    candidates
        .iter()
        .zip(fits)
        .map(|(candidate, fit)| Figure {
            tier: u8::from(!is_open && !is_holder(candidate)),
            cost: candidate.queued_tokens.saturating_add(fit.uncached_tokens) as f64 / candidate.share(),
            second: candidate.load(),
        })
        .collect()
}
