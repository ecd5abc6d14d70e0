//! The cost rule.
//!
//! The cost of endpoint *i*, in tokens of prefill work (lower is better):
//!
//! ```text
//! cost(i) = c_i · (Q_i / r_i + N_i + θ · W_i · N_i) + λ · p_i · D_i + μ · A_i / (w_i · r_i) + κ · M_i + ρ · R_i
//!           + η · H_i + z_i + e_i
//! ```
//!
//! | term | meaning |
//! |---|---|
//! | `Q_i` | uncached prompt tokens already sent to *i* and not yet at the first token |
//! | `N_i` | tokens of this request that *i* would have to compute |
//! | `D_i` | tokens that the best holder has and *i* has not: the price of making a copy |
//! | `p_i` | cache pressure of *i*, 0 to 1 |
//! | `W_i` | sequences on *i* before their first token: as many come behind, and each waits longer by `c_i · N_i` |
//! | `A_i` | sequences active on *i* |
//! | `c_i` | reference speed ÷ speed of *i* |
//! | `w_i` | capacity weight of *i* |
//! | `r_i` | share of its load that a young *i* takes yet |
//! | `M_i` | tokens for which the KV memory of *i* has no room: the request would wait for a running one to end |
//! | `R_i` | tokens given to *i* lately, fading: spreads work of which nothing is in flight any more |
//! | `H_i` | tokens of this request that are away from home on *i*; 0 unless others decide beside us ([`super::home`]) |
//! | `z_i`, `e_i` | zone constant; errors and distrust |
//!
//! Everything is in one unit, tokens still to be computed, so no threshold decides between locality and load: a warm
//! endpoint is chosen exactly as long as waiting behind its queue is cheaper than computing the prefix elsewhere.

use super::policy::CostWeights;
use super::{Candidate, Figure, Fit, SHARE_MIN};

pub(super) fn figures(weights: CostWeights, candidates: &[Candidate], fits: &[Fit]) -> Vec<Figure> {
    let of = |(candidate, fit)| Figure::of(price(weights, candidate, fit), 0.0);
    candidates.iter().zip(fits).map(of).collect()
}

fn price(weights: CostWeights, candidate: &Candidate, fit: &Fit) -> f64 {
    let queued = candidate.queued_tokens as f64 / candidate.ramp.max(SHARE_MIN);
    let own = fit.uncached_tokens as f64;
    let behind = weights.behind * f64::from(candidate.waiting_sequences) * own;
    let compute = candidate.slowness * (queued + own + behind);
    let copy = weights.lambda * candidate.pressure * f64::from(fit.duplicated_tokens);
    let batch = weights.mu * candidate.load();
    let memory = weights.memory * fit.missing_tokens as f64;
    let recent = weights.recent * candidate.recent_tokens;
    let away = weights.agree * candidate.away_tokens;
    compute + copy + batch + memory + recent + away + candidate.penalty
}
