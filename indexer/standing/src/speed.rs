//! How fast each endpoint is, learnt from times to the first token. Pure.
//!
//! A request that waits behind `Q` tokens and brings `N` of its own should reach its first token in `(Q + N) / speed`. So
//! each reported time gives the milliseconds that a token took; of the last ones, the median counts, which a few
//! requests that waited for something else (memory, a retry, a stalled network) do not move.
//!
//! An endpoint's slowness is its median against that of its fellows: what holds for all of them (a longer model, a busy
//! hour) cancels out. Little evidence says little; small differences are taken for chance; and what an endpoint showed
//! is forgotten after a while, so that one that was slow is tried again.
//!
//! Each indexer sees the first tokens of its own decisions and hears of those of its peers', each told once by the one who
//! saw it. So all have the same window, and what a peer that is gone told ages like everything else.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use warmpath_kv::Millis;

/// Below this many tokens a first token takes the time of a step of the engine, whatever its speed.
pub(super) const WORK_TOKENS_MIN: u64 = 256;
/// Times kept of one endpoint.
const SAMPLES_MAX: usize = 64;
/// Older ones are forgotten.
const SAMPLE_AGE_MAX_MS: u64 = 120_000;
/// Samples that weigh as much as the assumption that an endpoint is like the others.
const PRIOR_SAMPLES: f64 = 8.0;
/// Differences of up to a tenth (as a logarithm) are chance.
const CHANCE: f64 = 0.1;
/// Nobody is taken for more than this many times slower or faster than its capacity says.
const SLOWNESS_MAX: f64 = 4.0;

/// What one endpoint's rank lately needed per token, oldest first: what was seen here and what others saw, alike.
#[derive(Clone, Debug, Default)]
pub(super) struct SpeedWindow(VecDeque<Timed>);

/// One first token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FirstToken {
    /// What had to be computed until then.
    pub work_tokens: u64,
    /// Since the pick.
    pub ttft_us: u64,
    /// Who saw it; None: this indexer.
    pub by: Option<NonZeroU32>,
}

#[derive(Clone, Copy, Debug)]
struct Timed {
    at: Millis,
    token: FirstToken,
}

/// What a window comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Median, in milliseconds.
    pub ms_per_token: f64,
    pub samples: usize,
}

// === impl SpeedWindow ===

impl SpeedWindow {
    /// The first token came at `at`. One that another told twice counts once.
    pub(super) fn note(&mut self, token: FirstToken, at: Millis) {
        if token.work_tokens < WORK_TOKENS_MIN || token.ttft_us == 0 {
            return;
        }
        if token.by.is_some() && self.0.iter().any(|timed| timed.token == token) {
            return;
        }
        let place = self.0.partition_point(|timed| timed.at <= at);
        self.0.insert(place, Timed { at, token });
        if self.0.len() > SAMPLES_MAX {
            self.0.pop_front();
        }
    }

    /// Forgets what `by` told.
    pub(super) fn forget(&mut self, by: NonZeroU32) {
        self.0.retain(|timed| timed.token.by != Some(by));
    }

    /// What was seen here, with when it was.
    pub(super) fn own(&self) -> impl Iterator<Item = (Millis, FirstToken)> {
        self.0.iter().filter(|timed| timed.token.by.is_none()).map(|timed| (timed.at, timed.token))
    }

    /// None: nothing is known, or not any more.
    pub(super) fn pace(&mut self, now: Millis) -> Option<Pace> {
        while self.0.front().is_some_and(|timed| now.since(timed.at) > SAMPLE_AGE_MAX_MS) {
            self.0.pop_front();
        }
        let samples = self.0.len();
        let ms_per_token = median(self.0.iter().map(|timed| timed.token.ms_per_token()).collect())?;
        Some(Pace { ms_per_token, samples })
    }
}

// === impl FirstToken ===

impl FirstToken {
    fn ms_per_token(self) -> f64 {
        self.ttft_us as f64 / 1000.0 / self.work_tokens as f64
    }
}

/// The factor c of each of these fellows, given its pace and its capacity weight: 1 ÷ capacity for what nobody knows
/// better.
pub fn slownesses(fellows: &[(Option<Pace>, f64)]) -> Vec<f64> {
    let at_capacity = |pace: Pace, capacity: f64| pace.ms_per_token * capacity;
    let known: Vec<f64> =
        fellows.iter().filter_map(|(pace, capacity)| Some(at_capacity((*pace)?, *capacity))).collect();
    let reference = if known.len() < 2 { None } else { median(known) };
    let slowness = |(pace, capacity): &(Option<Pace>, f64)| {
        let (Some(pace), Some(reference)) = (*pace, reference) else { return 1.0 / capacity };
        let evidence = pace.samples as f64 / (pace.samples as f64 + PRIOR_SAMPLES);
        let difference = (at_capacity(pace, *capacity) / reference).ln();
        let beyond_chance = (difference.abs() - CHANCE).max(0.0).copysign(difference);
        let limit = SLOWNESS_MAX.ln();
        (evidence * beyond_chance).clamp(-limit, limit).exp() / capacity
    };
    fellows.iter().map(slowness).collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some((values.get(middle - 1)? + upper) / 2.0)
}

#[cfg(test)]
mod tests;
