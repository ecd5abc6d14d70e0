//! A run → the columns of the results.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::outcome::{Outcome, Run};

/// One object of `results.json`. Times are those of the engines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Name of the load.
    pub load: String,
    /// Name of the policy.
    pub policy: String,
    /// `simulator` or `envoy`.
    pub source: String,
    /// Requests.
    pub requests: usize,
    /// Runs with different seeds that the columns are the mean of.
    pub seeds: usize,
    /// Requests without a proper answer.
    pub failed: f64,
    /// Requests sent more than once.
    pub retried: f64,
    /// Time to the first token, all requests.
    pub ttft_ms: Percentiles,
    /// The same without the first wave.
    pub ttft_after_first_wave_ms: Percentiles,
    /// Time per token after the first.
    pub tpot_ms: Percentiles,
    /// Requests finished per second.
    pub requests_per_second: f64,
    /// Answer tokens per second.
    pub output_tokens_per_second: f64,
    /// Seconds from the first request to the last answer.
    pub seconds: f64,
    /// Share of prompt tokens found in a cache.
    pub hit_rate: f64,
    /// Mean over time of the largest in-flight of a replica ÷ mean over time of the mean.
    pub in_flight_max_to_mean: f64,
    /// Mean share of KV blocks held while requests were open.
    pub kv_usage: f64,
    /// Mean of requests not admitted yet, in all.
    pub waiting: f64,
    /// Sequences that lost their place.
    pub preemptions: f64,
    /// Requests sent to each replica, of the first seed.
    pub sent: Vec<usize>,
}

/// Of a distribution, in milliseconds; 0 where it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Mean.
    pub mean: f64,
    /// Half are below.
    pub p50: f64,
    /// Nine of ten are below.
    pub p90: f64,
    /// 99 of 100 are below.
    pub p99: f64,
}

// === impl Percentiles ===

impl Percentiles {
    /// Of these times.
    pub fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut sorted: Vec<f64> = times.map(|time| time.as_secs_f64() * 1000.0).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |percent: f64| {
            let position = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
            sorted.get(position.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        let mean = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
        Self { mean, p50: at(50.0), p90: at(90.0), p99: at(99.0) }
    }
}

// === impl Figures ===

impl Figures {
    /// Of a simulated run.
    pub fn of(run: &Run) -> Self {
        let answered = || run.outcomes.iter().filter(|outcome| outcome.first.is_some());
        let begin = run.outcomes.iter().filter_map(|outcome| outcome.sent).min().unwrap_or_default();
        let end = run.outcomes.iter().filter_map(|outcome| outcome.last).max().unwrap_or_default();
        let seconds = end.saturating_sub(begin).as_secs_f64();
        let finished = run.outcomes.iter().filter(|outcome| outcome.last.is_some()).count();
        let later = answered().filter(|outcome| outcome.sent >= Some(run.first_wave));
        let output: u64 = run
            .outcomes
            .iter()
            .zip(&run.outputs)
            .filter(|(outcome, _)| outcome.last.is_some())
            .map(|(_, output)| u64::from(*output))
            .sum();
        let tokens: u64 = answered().map(|outcome| u64::from(outcome.prompt_tokens)).sum();
        let cached: u64 = answered().map(|outcome| u64::from(outcome.cached)).sum();
        Self {
            load: run.load.clone(),
            policy: run.policy.clone(),
            source: "simulator".to_owned(),
            requests: run.outcomes.len(),
            seeds: 1,
            failed: run.outcomes.iter().filter(|outcome| outcome.failed).count() as f64,
            retried: run.outcomes.iter().filter(|outcome| outcome.tries > 1).count() as f64,
            ttft_ms: Percentiles::of(answered().filter_map(Outcome::ttft)),
            ttft_after_first_wave_ms: Percentiles::of(later.filter_map(Outcome::ttft)),
            tpot_ms: Percentiles::of(run.outcomes.iter().zip(&run.outputs).filter_map(tpot)),
            requests_per_second: ratio(finished as f64, seconds),
            output_tokens_per_second: ratio(output as f64, seconds),
            seconds,
            hit_rate: ratio(cached as f64, tokens as f64),
            in_flight_max_to_mean: max_to_mean(run),
            kv_usage: mean(run.samples.iter().map(|sample| sample.kv_usage)),
            waiting: mean(run.samples.iter().map(|sample| sample.waiting as f64)),
            preemptions: run.counters.iter().map(|counters| counters.preemptions as f64).sum(),
            sent: run.sent.clone(),
        }
    }
}

fn tpot((outcome, output): (&Outcome, &u32)) -> Option<Duration> {
    let gaps = output.checked_sub(1).filter(|gaps| *gaps > 0)?;
    Some(outcome.last?.saturating_sub(outcome.first?) / gaps)
}

fn max_to_mean(run: &Run) -> f64 {
    let most = run.samples.iter().map(|sample| sample.in_flight.iter().max().copied().unwrap_or(0) as f64);
    let means = run.samples.iter().map(|sample| mean(sample.in_flight.iter().map(|count| *count as f64)));
    ratio(most.sum(), means.sum())
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
    ratio(sum, count as f64)
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
