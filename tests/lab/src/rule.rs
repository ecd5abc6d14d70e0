//! What replicas are ranked by: a policy of the product, or a rule that is only tried here.

use warmpath_core::rank::{Candidate, CostWeights, Demand, Policy, Ranked, rank};

/// A rule with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name in results.
    pub name: String,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Policy(Policy),
    Trial(Trial),
}

/// The cost rule with more terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Those it has already.
    pub weights: CostWeights,
    /// Price of a token to compute for each sequence that waits there: what comes behind waits longer by it.
    pub behind: f64,
    /// Price of a duplicated token times the share of evicted tokens that are asked for again.
    pub regret: f64,
    /// Sequences waiting count at most so many.
    pub behind_max: f64,
    /// Most tokens that the charge for a copy comes to.
    pub copy_max: f64,
    /// Price of every token to compute under full cache pressure: it evicts another.
    pub evict: f64,
    /// How much dearer a copy is with every holder beyond the first.
    pub crowd: f64,
    /// Price of the square of the tokens to compute: who comes meanwhile waits, and the more come the longer it takes.
    pub convoy: f64,
    /// Pressure counts as at least this for copies.
    pub pressure_min: f64,
}

/// What a trial knows beside the candidates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// Tokens that were asked for again after all replicas had evicted them ÷ tokens evicted, of late.
    pub regret: f64,
}

// === impl Rule ===

impl Rule {
    /// A policy of the product.
    pub fn of(policy: Policy) -> Self {
        Self { name: policy.name().to_owned(), how: How::Policy(policy) }
    }

    /// A rule that is only tried.
    pub fn trial(name: impl Into<String>, trial: Trial) -> Self {
        Self { name: name.into(), how: How::Trial(trial) }
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Whether it asks what replicas hold.
    pub fn needs_hits(&self) -> bool {
        !matches!(self.how, How::Policy(Policy::RoundRobin | Policy::PowerOfTwo))
    }

    pub(crate) fn rank(
        &self,
        demand: Demand,
        candidates: &[Candidate],
        surroundings: Surroundings,
        turn: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> Vec<Ranked> {
        match self.how {
            How::Policy(policy) => rank(policy, demand, candidates, turn, random),
            How::Trial(trial) => {
                let best = candidates.iter().map(|candidate| candidate.cached_tokens).max().unwrap_or(0);
                let most = f64::from(best) * 0.8;
                let holds = |candidate: &&Candidate| best > 0 && f64::from(candidate.cached_tokens) >= most;
                let holders = candidates.iter().filter(holds).count();
                let charged: Vec<Candidate> = candidates
                    .iter()
                    .map(|candidate| trial.charged(demand, candidate, best, holders, surroundings))
                    .collect();
                let weights = CostWeights { lambda: 0.0, behind: 0.0, ..trial.weights };
                rank(Policy::Cost(weights), demand, &charged, turn, random)
            }
        }
    }
}

// === impl Trial ===

impl Default for Trial {
    fn default() -> Self {
        Self {
            weights: CostWeights::DEFAULT,
            behind: 0.0,
            regret: 0.0,
            behind_max: f64::INFINITY,
            copy_max: f64::INFINITY,
            evict: 0.0,
            crowd: 0.0,
            convoy: 0.0,
            pressure_min: 0.0,
        }
    }
}

impl Trial {
    /// The candidate with the further terms as a part of its penalty.
    fn charged(
        &self,
        demand: Demand,
        candidate: &Candidate,
        best: u32,
        holders: usize,
        surroundings: Surroundings,
    ) -> Candidate {
        let uncached = f64::from(demand.prompt_tokens.saturating_sub(candidate.cached_tokens));
        let duplicated = f64::from(best.saturating_sub(candidate.cached_tokens));
        let behind = f64::from(candidate.waiting_sequences).min(self.behind_max);
        let crowd = 1.0 + self.crowd * holders.saturating_sub(1) as f64;
        let copy = crowd * self.weights.lambda * candidate.pressure.max(self.pressure_min)
            + self.regret * surroundings.regret;
        let charge = (copy * duplicated).min(self.copy_max)
            + self.convoy * uncached * uncached
            + self.behind * behind * uncached
            + self.evict * candidate.pressure * uncached;
        Candidate { penalty: candidate.penalty + charge, ..candidate.clone() }
    }
}
