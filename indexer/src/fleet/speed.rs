//! How fast each endpoint is, learnt from times to the first token. Pure.
//!
//! A request that waits behind `Q` tokens and brings `N` of its own should reach its first token in `(Q + N) / speed`. So
//! each reported time gives the milliseconds that a token took; of the last ones, the median counts, which a few
//! requests that waited for something else (memory, a retry, a stalled network) do not move.
//!
//! An endpoint's slowness is its median against that of its fellows: what holds for all of them (a longer model, a busy
//! hour) cancels out. Little evidence says little; small differences are taken for chance; and what an endpoint showed
//! is forgotten after a while, so that one that was slow is tried again.

use std::collections::VecDeque;

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

/// What one endpoint's rank lately needed per token.
#[derive(Clone, Debug, Default)]
pub(super) struct SpeedWindow(VecDeque<(Millis, f64)>);

/// What a window comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Median, in milliseconds.
    pub ms_per_token: f64,
    pub samples: usize,
}

// === impl SpeedWindow ===

impl SpeedWindow {
    /// The first token came `ttft_ms` after the pick, with `work_tokens` to compute until then.
    pub(super) fn note(&mut self, work_tokens: u64, ttft_ms: f64, now: Millis) {
        if work_tokens < WORK_TOKENS_MIN || !ttft_ms.is_finite() || ttft_ms <= 0.0 {
            return;
        }
        if self.0.len() >= SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, ttft_ms / work_tokens as f64));
    }

    /// None: nothing is known, or not any more.
    pub(super) fn pace(&mut self, now: Millis) -> Option<Pace> {
        while self.0.front().is_some_and(|(at, _)| now.since(*at) > SAMPLE_AGE_MAX_MS) {
            self.0.pop_front();
        }
        let samples = self.0.len();
        let ms_per_token = median(self.0.iter().map(|(_, pace)| *pace).collect())?;
        Some(Pace { ms_per_token, samples })
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
