//! The figures of a demo for programs: `target/demo/summary.json`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Run;
use crate::load::Load;
use crate::load::figures::Ttft;

/// All runs.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Share of prompt tokens that could be found at best.
    pub ideal_hit_rate: f64,
    /// One for each policy.
    pub runs: Vec<RunSummary>,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    /// Name of the policy.
    pub policy: String,
    /// Requests sent.
    pub requests: usize,
    /// Of them without a proper answer.
    pub failed: usize,
    /// Share of the prompt tokens that the engines found in their prefix caches, by their own metrics.
    pub engine_hit_rate: f64,
    /// Requests that each endpoint answered.
    pub requests_per_endpoint: BTreeMap<String, usize>,
    /// Milliseconds of the engine's time.
    pub ttft_ms: Ttft,
    /// Share of the requests after the first use of each prefix whose predicted cached tokens were the actual ones.
    pub predicted_equals_actual: Option<f64>,
    /// KV events that the indexer took in.
    pub events: u64,
}

impl Summary {
    /// Of these runs of this load.
    pub fn of(load: &Load, runs: &[Run]) -> Self {
        Self { ideal_hit_rate: load.ideal_hit_rate(), runs: runs.iter().map(RunSummary::of).collect() }
    }
}

impl RunSummary {
    fn of(run: &Run) -> Self {
        Self {
            policy: run.policy.to_owned(),
            requests: run.figures.requests,
            failed: run.figures.failed,
            engine_hit_rate: run.prefix_cache.hit_rate(),
            requests_per_endpoint: run.figures.requests_per_endpoint.clone(),
            ttft_ms: run.figures.ttft_ms,
            predicted_equals_actual: run.figures.predicted_equals_actual,
            events: run.index.events as u64,
        }
    }
}
