//! Weighted scores, 0 to 1 each, as the pickers of inference gateways add them up.

use super::policy::Blend;
use super::{Candidate, Demand, Figure};

/// What every endpoint scores where somebody holds a part of the prompt, so that rest decides nothing.
const REST_SCORE_OF_HITS: f64 = 0.5;

pub(super) fn figures(blend: Blend, demand: Demand, candidates: &[Candidate]) -> Vec<Figure> {
    let rests =
        if blend.no_hit > 0.0 { rest_scores(candidates) } else { vec![REST_SCORE_OF_HITS; candidates.len()] };
    let scores = queue_scores(candidates).into_iter().zip(rests);
    candidates
        .iter()
        .zip(scores)
        .map(|(candidate, (queue, rest))| {
            let total = blend.prefix * prefix_score(candidate, demand)
                + blend.queue * queue
                + blend.kv * kv_score(candidate)
                + blend.no_hit * rest;
            // Lower is better everywhere else.
            Figure::of(-total, 0.0)
        })
        .collect()
}

fn prefix_score(candidate: &Candidate, demand: Demand) -> f64 {
    let held = candidate.cached_tokens.min(demand.prompt_tokens);
    f64::from(held) / f64::from(demand.prompt_tokens.max(1))
}

/// 1 for the shortest queue, 0 for the longest, 1 for all where all are equal.
pub(super) fn queue_scores(candidates: &[Candidate]) -> Vec<f64> {
    let queues = || candidates.iter().map(Candidate::queue);
    let longest = queues().fold(0.0, f64::max);
    let span = longest - queues().fold(longest, f64::min);
    queues().map(|queue| if span > 0.0 { (longest - queue) / span } else { 1.0 }).collect()
}

pub(super) fn kv_score(candidate: &Candidate) -> f64 {
    1.0 - candidate.kv_usage.clamp(0.0, 1.0)
}

/// 1 for who got no cold request for the longest time, 0 for who got the last one.
fn rest_scores(candidates: &[Candidate]) -> Vec<f64> {
    if candidates.iter().any(|candidate| candidate.cached_tokens > 0) {
        return vec![REST_SCORE_OF_HITS; candidates.len()];
    }
    let last = candidates.len().saturating_sub(1).max(1) as f64;
    let mut in_order: Vec<u64> = candidates.iter().map(|candidate| candidate.last_cold).collect();
    in_order.sort_unstable();
    let earlier = |than: u64| in_order.partition_point(|other| *other < than) as f64;
    candidates.iter().map(|candidate| 1.0 - earlier(candidate.last_cold) / last).collect()
}
