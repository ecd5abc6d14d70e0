//! Requests that share prefixes, made from a seed.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::{Request, Start};
use crate::prompt::{PromptBuilder, mix};

/// A generator of requests: each has a prefix that others have too, and words of its own.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Tokens per block of the replicas.
    pub block_tokens: u32,
    /// Requests.
    pub count: usize,
    /// Which prefix each has.
    pub choice: Choice,
    /// Tokens of a prefix, at least and at most; each prefix has one length.
    pub prefix_tokens: (u32, u32),
    /// Tokens of its own, at least and at most.
    pub own_tokens: (u32, u32),
    /// Tokens of the answer, at least and at most.
    pub output: (u32, u32),
    /// When they come.
    pub arrivals: Arrivals,
    /// Decides everything that is random.
    pub seed: u64,
}

/// Which prefix a request has.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// Each prefix so many times in a row.
    InRow(usize),
    /// Every prefix in turn.
    InTurn(usize),
    /// Any of so many.
    Uniform(usize),
    /// Every prefix in turn, but this share of the requests has any of them.
    Mixed(usize, f64),
    /// The first with this probability, otherwise any of so many others.
    Hot(f64, usize),
    /// Any of so many, the n-th with a weight of 1/n to this power.
    Zipf(usize, f64),
    /// None: nothing is shared.
    Unique,
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// All want to be sent at once; the concurrency of the load decides.
    AtOnce,
    /// So many a second, at random moments.
    Poisson(f64),
    /// So many a second in the mean, with gaps of this coefficient of variation above 1: they come in clusters.
    Bursty(f64, f64),
}

// === impl Shared ===

impl Shared {
    /// The requests.
    pub fn requests(&self) -> Vec<Request> {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        let mut clock = 0.0;
        (0..self.count)
            .map(|number| {
                let prefix = self.choice.prefix(number, &mut random);
                let own = random.random_range(self.own_tokens.0..=self.own_tokens.1);
                let output = random.random_range(self.output.0..=self.output.1);
                let at = Duration::from_secs_f64(clock);
                clock += self.arrivals.gap(&mut random);
                let mut prompt = PromptBuilder::new(self.block_tokens);
                if let Some(prefix) = prefix {
                    let name = mix(self.seed, prefix as u64);
                    let (least, most) = self.prefix_tokens;
                    prompt = prompt.text(name, least + (mix(name, 1) % u64::from(most - least + 1)) as u32);
                }
                let own_name = mix(mix(self.seed, !0), number as u64);
                Request { start: Start::At(at), prompt: prompt.text(own_name, own).build(), output }
            })
            .collect()
    }
}

// === impl Choice ===

impl Choice {
    fn prefix(&self, number: usize, random: &mut Pcg64Mcg) -> Option<usize> {
        match *self {
            Self::InRow(uses) => Some(number / uses.max(1)),
            Self::InTurn(count) => Some(number % count.max(1)),
            Self::Uniform(count) => Some(random.random_range(0..count.max(1))),
            Self::Mixed(count, share) => {
                let is_random = random.random::<f64>() < share;
                Some(if is_random { random.random_range(0..count.max(1)) } else { number % count.max(1) })
            }
            Self::Hot(share, others) => {
                let is_hot = random.random::<f64>() < share;
                Some(if is_hot { 0 } else { random.random_range(1..=others.max(1)) })
            }
            Self::Zipf(count, power) => Some(zipf(count, power, random)),
            Self::Unique => None,
        }
    }
}

fn zipf(count: usize, power: f64, random: &mut Pcg64Mcg) -> usize {
    let weight = |rank: usize| (rank as f64 + 1.0).powf(-power);
    let mut lot = random.random::<f64>() * (0..count).map(weight).sum::<f64>();
    let found = (0..count).find(|rank| {
        lot -= weight(*rank);
        lot <= 0.0
    });
    found.unwrap_or(0)
}

// === impl Arrivals ===

impl Arrivals {
    /// Seconds to the next request.
    pub fn gap(self, random: &mut Pcg64Mcg) -> f64 {
        let mut exponential = |rate: f64| -(1.0 - random.random::<f64>()).ln() / rate;
        match self {
            Self::AtOnce => 0.0,
            Self::Poisson(rate) => exponential(rate),
            // Two kinds of gaps, both exponential, with balanced means: the usual way to a given variation above 1.
            Self::Bursty(rate, variation) => {
                let square = (variation * variation).max(1.0);
                let p = 0.5 * (1.0 + ((square - 1.0) / (square + 1.0)).sqrt());
                let (short, long) = (2.0 * p * rate, 2.0 * (1.0 - p) * rate);
                let gap_of = if random.random::<f64>() < p { short } else { long };
                -(1.0 - random.random::<f64>()).ln() / gap_of
            }
        }
    }
}
