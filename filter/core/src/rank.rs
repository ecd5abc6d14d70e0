//! Candidates with their load and hits → a ranking. Pure: randomness comes in as an argument.
//!
//! In: one [`Candidate`] per usable endpoint (and rank), the size of the request, a [`Policy`].
//! Out: [`Ranked`] entries, best first, each with what made its place, so that a decision can be explained.
//!
//! Each policy turns candidates into [`Figure`]s in a module of its own: [`cost`] the price of [`Policy::Cost`], [`blend`]
//! the weighted scores of the gateways' pickers, [`affinity`] what goes by the longest prefix, [`load`] what goes by load
//! alone. [`home`] is what several that decide agree on without a word. This module sorts and breaks ties, the same way for
//! all: equals are put in random order, so that a burst of requests does not all pick the same endpoint.

mod affinity;
mod blend;
mod cost;
mod home;
mod load;
mod policy;
#[cfg(test)]
mod tests;

pub use home::{Deciders, Home, Landmark, Other, Unheard};
pub use policy::{
    AGREE_DEFAULT, BEHIND_DEFAULT, Blend, CostWeights, LAMBDA_DEFAULT, MU_DEFAULT, Policy,
    STICKY_GATE_TOKENS_DEFAULT, STICKY_SHARE_DEFAULT, Sticky,
};

/// Shares and capacities below this are taken for it: a tenth of the smallest that any configuration takes.
const SHARE_MIN: f64 = 1e-3;

/// What is known of one endpoint (and rank) when a request is ranked. The default is an idle one with an empty cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Tokens of the prompt that its prefix cache holds, as far as trusted; already capped by the last-block rule.
    pub cached_tokens: u32,
    /// Q: uncached prompt tokens sent to it that have not reached the first token.
    pub queued_tokens: u64,
    /// Sequences among the active ones that have not reached the first token.
    pub waiting_sequences: u32,
    /// A: sequences active on it, waiting ones included.
    pub active_sequences: u32,
    /// Share of its KV memory that running sequences use, 0 to 1.
    pub kv_usage: f64,
    /// Tokens that its KV memory has for new sequences: free, or cached and in no use. None: not known.
    pub room_tokens: Option<u64>,
    /// p: cache pressure, 0 (empty) to 1 (every new block evicts another).
    pub pressure: f64,
    /// c: reference speed ÷ its speed; 1 while nothing has been learnt.
    pub slowness: f64,
    /// w: how many sequences it takes where a reference endpoint takes one; above 0.
    pub capacity: f64,
    /// r: share of its load that a young endpoint takes yet, above 0 and at most 1.
    pub ramp: f64,
    /// R: tokens that it was given to compute lately, fading.
    pub recent_tokens: f64,
    /// H: tokens of the prompt that are away from home here; see [`home`]. 0 for all: nothing has to be agreed.
    pub away_tokens: f64,
    /// z + e, in tokens.
    pub penalty: f64,
    /// Number of the last ranking that gave it a request of which nobody held anything; 0: none did.
    pub last_cold: u64,
}

/// The request, as far as ranking needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Tokens of the prompt that decides.
    pub prompt_tokens: u32,
    /// Tokens of further prompts of the same request, which no cache is asked about.
    pub further_tokens: u64,
    /// Tokens that it will probably generate, all sequences together; 0: not known.
    pub output_tokens: u64,
    /// Costs that differ by less than this many tokens are equal; one block.
    pub tie_tokens: u32,
}

/// One entry of a ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Position in the slice of candidates that was ranked.
    pub index: usize,
    /// What it was ranked by: tokens for [`Policy::Cost`], the policy's own figure otherwise. Lower is better.
    pub cost: f64,
    /// N: tokens of the request it would have to compute, all prompts together.
    pub uncached_tokens: u64,
    /// D: tokens that the best holder has and it has not.
    pub duplicated_tokens: u32,
    /// M: tokens by which the request and what waits before it exceed the room in its KV memory.
    pub missing_tokens: u64,
}

/// What the request means for one candidate, whatever the policy.
#[derive(Clone, Copy, Debug)]
struct Fit {
    uncached_tokens: u64,
    duplicated_tokens: u32,
    missing_tokens: u64,
}

/// A candidate's place by one policy. Lower is better; a lower tier comes before everything of a higher one.
#[derive(Clone, Copy, Debug)]
struct Figure {
    tier: u8,
    cost: f64,
    /// Decides between equal costs.
    second: f64,
}

/// Ranks every candidate, best first. `turn` counts the rankings made so far (for round robin), `random` breaks ties.
pub fn rank(
    policy: Policy,
    demand: Demand,
    candidates: &[Candidate],
    turn: u64,
    random: &mut dyn FnMut() -> u64,
) -> Vec<Ranked> {
    let best_cached = candidates.iter().map(|candidate| candidate.cached_tokens).max().unwrap_or(0);
    let fits: Vec<Fit> = candidates.iter().map(|candidate| Fit::of(candidate, demand, best_cached)).collect();
    let figures = match policy {
        Policy::RoundRobin => load::in_turn(candidates.len(), turn),
        Policy::PowerOfTwo => load::better_of_two(candidates, random),
        Policy::LeastLoad => load::least(candidates),
        Policy::LongestPrefix => affinity::longest(candidates),
        Policy::Sticky(sticky) => affinity::sticky(sticky, demand, candidates, &fits),
        Policy::Weighted { blend, .. } => blend::figures(blend, demand, candidates),
        Policy::NewTimesBatch => load::new_times_batch(candidates, &fits),
        Policy::Cost(weights) => cost::figures(weights, candidates, &fits),
    };
    let mut ranked: Vec<(Figure, u64, Ranked)> = fits
        .iter()
        .zip(figures)
        .enumerate()
        .map(|(index, (fit, figure))| (figure, random(), fit.ranked(index, figure.cost)))
        .collect();
    ranked.sort_by(|(a, lot_a, _), (b, lot_b, _)| {
        let by_figure = a.tier.cmp(&b.tier).then(a.cost.total_cmp(&b.cost));
        by_figure.then(a.second.total_cmp(&b.second)).then(lot_a.cmp(lot_b))
    });
    if let Policy::Cost(_) = policy {
        shuffle_close_ones(demand.tie_tokens, &mut ranked);
    }
    ranked.into_iter().map(|(_, _, entry)| entry).collect()
}

/// Costs within a tie of the best one are equal.
fn shuffle_close_ones(tie_tokens: u32, ranked: &mut [(Figure, u64, Ranked)]) {
    let Some((best, _, _)) = ranked.first() else { return };
    let limit = best.cost + f64::from(tie_tokens);
    let close = ranked.iter().take_while(|(figure, _, _)| figure.cost < limit).count();
    if let Some(group) = ranked.get_mut(..close) {
        group.sort_by_key(|(_, lot, _)| *lot);
    }
}

// === impl Candidate ===

impl Candidate {
    /// Divides what it has to do: a young or small endpoint counts the same load for more.
    fn share(&self) -> f64 {
        (self.capacity * self.ramp).max(SHARE_MIN)
    }

    /// Active sequences per share.
    fn load(&self) -> f64 {
        f64::from(self.active_sequences) / self.share()
    }

    /// Sequences before their first token, per share.
    fn queue(&self) -> f64 {
        f64::from(self.waiting_sequences) / self.share()
    }
}

impl Default for Candidate {
    fn default() -> Self {
        Self {
            cached_tokens: 0,
            queued_tokens: 0,
            waiting_sequences: 0,
            active_sequences: 0,
            kv_usage: 0.0,
            room_tokens: None,
            pressure: 0.0,
            slowness: 1.0,
            capacity: 1.0,
            ramp: 1.0,
            recent_tokens: 0.0,
            away_tokens: 0.0,
            penalty: 0.0,
            last_cold: 0,
        }
    }
}

// === impl Fit ===

impl Fit {
    fn of(candidate: &Candidate, demand: Demand, best_cached: u32) -> Self {
        let uncached_tokens =
            u64::from(demand.prompt_tokens.saturating_sub(candidate.cached_tokens)) + demand.further_tokens;
        let needed =
            uncached_tokens.saturating_add(demand.output_tokens).saturating_add(candidate.queued_tokens);
        Self {
            uncached_tokens,
            duplicated_tokens: best_cached.saturating_sub(candidate.cached_tokens),
            missing_tokens: candidate.room_tokens.map_or(0, |room| needed.saturating_sub(room)),
        }
    }

    fn ranked(self, index: usize, cost: f64) -> Ranked {
        let Self { uncached_tokens, duplicated_tokens, missing_tokens } = self;
        Ranked { index, cost, uncached_tokens, duplicated_tokens, missing_tokens }
    }
}

// === impl Figure ===

impl Figure {
    fn of(cost: f64, second: f64) -> Self {
        Self { tier: 0, cost, second }
    }
}
