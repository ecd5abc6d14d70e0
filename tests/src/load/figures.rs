//! Samples → the figures of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::Sample;

/// Times to the first token, in milliseconds of the engine's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ttft {
    /// Half of the requests were faster.
    pub p50: f64,
    /// Nine of ten were.
    pub p90: f64,
    /// 99 of 100 were.
    pub p99: f64,
    /// The same without the first use of each prefix, which nobody can have cached.
    pub p99_after_first_wave: f64,
}

/// What a run showed on the clients' side.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Requests sent.
    pub requests: usize,
    /// Of them without a proper answer.
    pub failed: usize,
    /// A: how they were spread.
    pub requests_per_endpoint: BTreeMap<String, usize>,
    /// How long they took.
    pub ttft_ms: Ttft,
    /// Share of the requests after the first use of their prefix whose predicted cached tokens are those that the
    /// engine reports. None where nothing was predicted.
    pub predicted_equals_actual: Option<f64>,
    /// Share of the prompt tokens that the engines report as cached.
    pub cached_share: f64,
}

impl Figures {
    /// Of these samples.
    pub fn of(samples: &[Sample]) -> Self {
        let answered: Vec<&Sample> = samples.iter().filter(|sample| sample.failure.is_none()).collect();
        let later: Vec<&Sample> = answered.iter().copied().filter(|sample| sample.use_number > 0).collect();
        let mut requests_per_endpoint = BTreeMap::new();
        for sample in &answered {
            *requests_per_endpoint.entry(sample.endpoint.clone()).or_insert(0) += 1;
        }
        let all_ttft = sorted_ttft(&answered);
        Self {
            requests: samples.len(),
            failed: samples.len() - answered.len(),
            requests_per_endpoint,
            ttft_ms: Ttft {
                p50: percentile(&all_ttft, 50.0),
                p90: percentile(&all_ttft, 90.0),
                p99: percentile(&all_ttft, 99.0),
                p99_after_first_wave: percentile(&sorted_ttft(&later), 99.0),
            },
            predicted_equals_actual: predicted_equals_actual(&later),
            cached_share: share(
                answered.iter().map(|sample| sample.cached_tokens).sum(),
                answered.iter().map(|sample| sample.prompt_tokens).sum(),
            ),
        }
    }
}

fn predicted_equals_actual(samples: &[&Sample]) -> Option<f64> {
    let predicted = samples.iter().filter(|sample| sample.predicted_tokens.is_some()).count();
    let equal = samples.iter().filter(|sample| sample.predicted_tokens == Some(sample.cached_tokens)).count();
    (predicted > 0).then(|| share(equal as u64, samples.len() as u64))
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn sorted_ttft(samples: &[&Sample]) -> Vec<Duration> {
    let mut times: Vec<Duration> = samples.iter().map(|sample| sample.ttft).collect();
    times.sort();
    times
}

/// The smallest of the sorted times that at least `percent` of them do not exceed, in milliseconds; 0 for none.
fn percentile(sorted: &[Duration], percent: f64) -> f64 {
    let position = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(position.saturating_sub(1)).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(use_number: usize, ttft_ms: u64, predicted: Option<u64>, cached: u64) -> Sample {
        Sample {
            prefix: 0,
            use_number,
            failure: None,
            endpoint: "a".to_owned(),
            outcome: "scored".to_owned(),
            predicted_tokens: predicted,
            cached_tokens: cached,
            prompt_tokens: 100,
            ttft: Duration::from_millis(ttft_ms),
        }
    }

    #[test]
    fn percentiles_are_of_times_that_occurred() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50.0), 100.0);
        assert_eq!(percentile(&times, 99.0), 198.0);
        assert_eq!(percentile(&times[..1], 99.0), 1.0);
        assert_eq!(percentile(&[], 99.0), 0.0);
    }

    #[test]
    fn the_first_use_of_a_prefix_counts_for_the_whole_run_only() {
        let failed = Sample { failure: Some("503".to_owned()), ..sample(1, 9999, None, 0) };
        let figures = Figures::of(&[
            sample(0, 900, Some(0), 0),
            sample(1, 100, Some(96), 96),
            sample(1, 200, Some(96), 48),
            failed,
        ]);
        assert_eq!((figures.requests, figures.failed), (4, 1));
        assert_eq!(figures.requests_per_endpoint["a"], 3);
        assert_eq!((figures.ttft_ms.p99, figures.ttft_ms.p99_after_first_wave), (900.0, 200.0));
        assert_eq!(figures.predicted_equals_actual, Some(0.5));
        assert_eq!(figures.cached_share, 144.0 / 300.0);
    }

    #[test]
    fn without_a_prediction_nothing_is_compared() {
        assert_eq!(Figures::of(&[sample(1, 1, None, 0)]).predicted_equals_actual, None);
    }
}
