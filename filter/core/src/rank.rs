//! Candidates with their load and hits → a ranking. Pure: randomness comes in as an argument.
//!
//! In: one [`Candidate`] per usable endpoint (and rank), the size of the request, a [`Policy`].
//! Out: [`Ranked`] entries, best first, each with every term that made its cost, so that a decision can be explained.
//!
//! The cost of endpoint *i*, in tokens of prefill work (lower is better):
//!
//! ```text
//! cost(i) = c_i · (Q_i + N_i) + λ · p_i · D_i + μ · A_i + z_i + e_i
//! ```
//!
//! | term | meaning |
//! |---|---|
//! | `Q_i` | uncached prompt tokens already sent to *i* and not yet at the first token |
//! | `N_i` | tokens of this request that *i* would have to compute |
//! | `D_i` | tokens that the best holder has and *i* has not: the price of making a copy |
//! | `p_i` | cache pressure of *i*, 0 to 1 |
//! | `A_i` | sequences active on *i* |
//! | `c_i` | reference speed ÷ speed of *i* |
//! | `z_i`, `e_i` | zone constant; errors and distrust |
//!
//! Everything is in one unit, tokens still to be computed, so no threshold decides between locality and load: a warm
//! endpoint is chosen exactly as long as waiting behind its queue is cheaper than computing the prefix elsewhere.

/// λ: price of a duplicated token under full cache pressure, in tokens. 2 to 4 was best where the cache is tight and
/// harmless elsewhere (docs/decisions/0003-cost-rule.md).
pub const LAMBDA_DEFAULT: f64 = 4.0;

/// μ: price of an active sequence, in tokens: what a running decode takes from a prefill beside it.
pub const MU_DEFAULT: f64 = 50.0;

/// What is known of one endpoint (and rank) when a request is ranked.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Tokens of the prompt that its prefix cache holds, as far as trusted; already capped by the last-block rule.
    pub cached_tokens: u32,
    /// Q: uncached prompt tokens sent to it that have not reached the first token.
    pub queued_tokens: u64,
    /// A: sequences active on it.
    pub active_sequences: u32,
    /// p: cache pressure, 0 (empty) to 1 (every new block evicts another).
    pub pressure: f64,
    /// c: reference speed ÷ its speed; 1 while nothing has been learnt.
    pub slowness: f64,
    /// z + e, in tokens.
    pub penalty: f64,
}

/// The request, as far as ranking needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Tokens of the prompt that decides.
    pub prompt_tokens: u32,
    /// Tokens of further prompts of the same request, which no cache is asked about.
    pub further_tokens: u64,
    /// Costs that differ by less than this many tokens are equal; one block.
    pub tie_tokens: u32,
}

/// How endpoints are ranked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// In turn, whatever their load.
    RoundRobin,
    /// Fewest active sequences, then fewest queued tokens; caches are not looked at.
    LeastLoad,
    /// Most cached tokens, then least load.
    LongestPrefix,
    /// The cost rule above.
    Cost {
        /// λ, 0 or more.
        lambda: f64,
        /// μ, in tokens, 0 or more.
        mu: f64,
    },
}

impl Policy {
    /// Its name in configuration, metrics and receipts.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastLoad => "least_load",
            Self::LongestPrefix => "longest_prefix",
            Self::Cost { .. } => "cost",
        }
    }

    /// The policy of this name with its default parameters.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "round_robin" => Self::RoundRobin,
            "least_load" => Self::LeastLoad,
            "longest_prefix" => Self::LongestPrefix,
            "cost" => Self::Cost { lambda: LAMBDA_DEFAULT, mu: MU_DEFAULT },
            _ => return None,
        })
    }

    /// Every name, for messages.
    pub const NAMES: [&'static str; 4] = ["round_robin", "least_load", "longest_prefix", "cost"];
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
}

/// Ranks every candidate, best first. `turn` counts the rankings made so far (for round robin), `random` breaks ties.
pub fn rank(
    policy: Policy,
    demand: Demand,
    candidates: &[Candidate],
    turn: u64,
    random: &mut dyn FnMut() -> u64,
) -> Vec<Ranked> {
    let best_cached = candidates.iter().map(|c| c.cached_tokens).max().unwrap_or(0);
    let count = candidates.len().max(1) as u64;
    let mut ranked: Vec<(f64, u64, Ranked)> = candidates
        .iter()
        .enumerate()
        .map(|(index, candidate)| {
            let uncached = u64::from(demand.prompt_tokens.saturating_sub(candidate.cached_tokens))
                + demand.further_tokens;
            let duplicated = best_cached.saturating_sub(candidate.cached_tokens);
            let cost = match policy {
                Policy::RoundRobin => ((index as u64 + count - turn % count) % count) as f64,
                Policy::LeastLoad => load(candidate),
                Policy::LongestPrefix => -f64::from(candidate.cached_tokens),
                Policy::Cost { lambda, mu } => {
                    candidate.slowness * (candidate.queued_tokens as f64 + uncached as f64)
                        + lambda * candidate.pressure * f64::from(duplicated)
                        + mu * f64::from(candidate.active_sequences)
                        + candidate.penalty
                }
            };
            let entry = Ranked { index, cost, uncached_tokens: uncached, duplicated_tokens: duplicated };
            (second_key(policy, candidate), random(), entry)
        })
        .collect();
    ranked.sort_by(|(load_a, _, a), (load_b, _, b)| {
        a.cost.total_cmp(&b.cost).then_with(|| load_a.total_cmp(load_b))
    });
    break_ties(policy, demand.tie_tokens, &mut ranked);
    ranked.into_iter().map(|(_, _, entry)| entry).collect()
}

/// Entries whose cost is within the tie of the best one are equal; they are put in random order, so that a burst of
/// requests does not all pick the same endpoint.
fn break_ties(policy: Policy, tie_tokens: u32, ranked: &mut [(f64, u64, Ranked)]) {
    let Some((best_load, _, best)) = ranked.first() else { return };
    let (best_load, best_cost) = (*best_load, best.cost);
    let tied = match policy {
        Policy::RoundRobin => return,
        Policy::Cost { .. } => {
            ranked.iter().take_while(|(_, _, r)| r.cost - best_cost < f64::from(tie_tokens)).count()
        }
        Policy::LeastLoad | Policy::LongestPrefix => {
            ranked.iter().take_while(|(load, _, r)| r.cost == best_cost && *load == best_load).count()
        }
    };
    if let Some(group) = ranked.get_mut(..tied) {
        group.sort_by_key(|(_, lot, _)| *lot);
    }
}

fn load(candidate: &Candidate) -> f64 {
    f64::from(candidate.active_sequences)
}

fn second_key(policy: Policy, candidate: &Candidate) -> f64 {
    match policy {
        Policy::RoundRobin | Policy::Cost { .. } => 0.0,
        Policy::LeastLoad => candidate.queued_tokens as f64,
        Policy::LongestPrefix => load(candidate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(cached_tokens: u32) -> Candidate {
        Candidate {
            cached_tokens,
            queued_tokens: 0,
            active_sequences: 0,
            pressure: 0.0,
            slowness: 1.0,
            penalty: 0.0,
        }
    }

    const DEMAND: Demand = Demand { prompt_tokens: 3136, further_tokens: 0, tie_tokens: 16 };
    const COST: Policy = Policy::Cost { lambda: LAMBDA_DEFAULT, mu: MU_DEFAULT };

    fn order(policy: Policy, candidates: &[Candidate], turn: u64) -> Vec<usize> {
        let mut state = 7u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state
        };
        rank(policy, DEMAND, candidates, turn, &mut random).into_iter().map(|r| r.index).collect()
    }

    #[test]
    fn the_holder_wins_while_its_queue_is_cheaper_than_a_copy() {
        let mut warm = idle(3072);
        assert_eq!(order(COST, &[idle(0), warm.clone()], 0), [1, 0]);
        warm.queued_tokens = 3000;
        assert_eq!(order(COST, &[idle(0), warm.clone()], 0), [1, 0]);
        warm.queued_tokens = 3200;
        assert_eq!(order(COST, &[idle(0), warm], 0), [0, 1]);
    }

    #[test]
    fn a_copy_costs_more_under_cache_pressure() {
        let mut warm = idle(3072);
        warm.queued_tokens = 3200;
        let mut cold = idle(0);
        cold.pressure = 1.0;
        assert_eq!(order(COST, &[cold, warm], 0), [1, 0]);
    }

    #[test]
    fn slow_busy_or_distrusted_endpoints_lose() {
        for change in [
            (|c: &mut Candidate| c.slowness = 2.0) as fn(&mut Candidate),
            |c| c.active_sequences = 10,
            |c| c.penalty = 500.0,
        ] {
            let mut worse = idle(0);
            change(&mut worse);
            assert_eq!(order(COST, &[worse, idle(0)], 0), [1, 0]);
        }
    }

    #[test]
    fn round_robin_takes_every_endpoint_in_turn() {
        let three = [idle(0), idle(3072), idle(0)];
        let firsts: Vec<usize> =
            (0..6).filter_map(|turn| order(Policy::RoundRobin, &three, turn).first().copied()).collect();
        assert_eq!(firsts, [0, 1, 2, 0, 1, 2]);
        assert_eq!(order(Policy::RoundRobin, &three, 1), [1, 2, 0]);
    }

    #[test]
    fn ties_within_a_block_are_spread() {
        let candidates: Vec<Candidate> =
            (0..8u32).map(|i| Candidate { penalty: f64::from(i), ..idle(0) }).collect();
        let mut state = 1u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut wins = [0u32; 8];
        for turn in 0..8000 {
            let ranking = rank(COST, DEMAND, &candidates, turn, &mut random);
            wins[ranking[0].index] += 1;
        }
        assert!(wins.iter().all(|w| (800..1200).contains(w)), "{wins:?}");
    }

    #[test]
    fn least_load_ignores_caches_and_longest_prefix_ignores_queues() {
        let mut warm_busy = idle(3072);
        warm_busy.active_sequences = 3;
        assert_eq!(order(Policy::LeastLoad, &[warm_busy.clone(), idle(0)], 0), [1, 0]);
        assert_eq!(order(Policy::LongestPrefix, &[idle(0), warm_busy], 0), [1, 0]);
    }

    #[test]
    fn names_round_trip() {
        for name in Policy::NAMES {
            assert_eq!(Policy::by_name(name).map(|p| p.name()), Some(name));
        }
        assert_eq!(Policy::by_name("fastest"), None);
    }

    #[test]
    fn no_candidates_give_no_ranking() {
        assert!(order(COST, &[], 3).is_empty());
    }
}
