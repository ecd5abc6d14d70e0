//! A load: what is asked, when, and how many requests may wait at once; and driving it.
//!
//! ```text
//! Load ─▶ Planned requests ─▶ drive ─▶ Samples ─▶ figures (figures.rs)
//! ```
//!
//! Times are the engine's own: an engine that runs 5 times as fast is asked 5 times as often, and what is measured is
//! multiplied by 5.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::join_all;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::client::{Answer, Call, Client};
use crate::prompts;
use crate::stack::MODEL;

pub mod figures;

/// Between two requests at least, in real time. Places that become free at once, as at the end of an engine's step,
/// would otherwise send at once, and requests with the same prefix would overtake each other between decision and engine.
const SEND_GAP: Duration = Duration::from_millis(10);
/// The filter's interval of reports by default.
const REPORT_INTERVAL_MS: f64 = 50.0;
/// And the least that it takes.
const REPORT_INTERVAL_MS_MIN: u64 = 10;

/// Requests that share prefixes: each prefix is used `uses` times in a row, each time followed by words of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Different prefixes.
    pub prefixes: usize,
    /// Tokens of each.
    pub prefix_tokens: usize,
    /// Requests with each.
    pub uses: usize,
    /// Tokens that a request has of its own, at least and at most.
    pub own_tokens: (usize, usize),
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// Mean rate of arrival, in requests per second of the engine's time; the gaps are those of a Poisson process.
    pub rate: f64,
    /// Requests in flight at most; further ones wait unsent, and their time does not count yet.
    pub concurrency: usize,
    /// Decides words and gaps.
    pub seed: u64,
}

/// A request of a load.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Which prefix.
    pub prefix: usize,
    /// Its how-manieth use, from 0.
    pub use_number: usize,
    /// After the load's start, in the engine's time.
    pub at: Duration,
    /// Prefix and own words.
    pub prompt: String,
}

/// What became of a request.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Which prefix.
    pub prefix: usize,
    /// Its how-manieth use, from 0.
    pub use_number: usize,
    /// Why it failed, where it did.
    pub failure: Option<String>,
    /// The endpoint that answered; empty where none did, or the filter said nothing.
    pub endpoint: String,
    /// `scored`, `fallback`, …
    pub outcome: String,
    /// Tokens that were predicted to be cached, where it was scored.
    pub predicted_tokens: Option<u64>,
    /// Tokens that were cached, as the engine says.
    pub cached_tokens: u64,
    /// Tokens of the prompt, as the engine says.
    pub prompt_tokens: u64,
    /// From sending to the first token, in the engine's time.
    pub ttft: Duration,
}

impl Load {
    /// The load of a published run with two replicas of a 14B model: 160 prefixes of 3,072 tokens, three uses each.
    pub fn three_uses() -> Self {
        Self {
            prefixes: 160,
            prefix_tokens: 3072,
            uses: 3,
            own_tokens: (56, 72),
            output_tokens: 16,
            rate: 10.0,
            concurrency: 32,
            seed: 1,
        }
    }

    /// How often a filter must report so that its reports are as old, in the time of engines this much faster, as with
    /// real ones.
    pub fn report_interval_ms(speedup: f64) -> u64 {
        ((REPORT_INTERVAL_MS / speedup) as u64).max(REPORT_INTERVAL_MS_MIN)
    }

    /// The requests, in order of arrival.
    pub fn plan(&self) -> Vec<Planned> {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        let mut at = 0.0;
        let mut plan = Vec::new();
        for prefix in 0..self.prefixes {
            let shared = prompts::text(random.random(), self.prefix_tokens);
            for use_number in 0..self.uses {
                let own = random.random_range(self.own_tokens.0..=self.own_tokens.1);
                let prompt = format!("{shared}{}", prompts::text(random.random(), own));
                plan.push(Planned { prefix, use_number, at: Duration::from_secs_f64(at), prompt });
                at += -(1.0 - random.random::<f64>()).ln() / self.rate;
            }
        }
        plan
    }

    /// The share of prompt tokens that would be found if every use but the first found its whole prefix.
    pub fn ideal_hit_rate(&self) -> f64 {
        let own = (self.own_tokens.0 + self.own_tokens.1) as f64 / 2.0;
        let prefix = self.prefix_tokens as f64;
        let uses = self.uses as f64;
        (uses - 1.0) * prefix / (uses * (prefix + own))
    }

    /// Sends every request through Envoy at `address`, at its time, and waits for all answers. `done` counts the
    /// answers as they come.
    pub async fn drive(
        &self,
        client: &Client,
        address: &str,
        speedup: f64,
        done: &Arc<AtomicUsize>,
    ) -> Result<Vec<Sample>> {
        let free = Arc::new(Semaphore::new(self.concurrency));
        let started = Instant::now();
        let mut requests = Vec::new();
        for planned in self.plan() {
            let permit = Arc::clone(&free).acquire_owned().await.context("the load was closed")?;
            let due = planned.at.div_f64(speedup);
            tokio::time::sleep(due.saturating_sub(started.elapsed()).max(SEND_GAP)).await;
            let call = self.call(&planned);
            let (client, address, done) = (client.clone(), address.to_owned(), Arc::clone(done));
            requests.push(tokio::spawn(async move {
                let answer = client.send(&address, call).await;
                drop(permit);
                done.fetch_add(1, Ordering::Relaxed);
                sample(&planned, answer, speedup)
            }));
        }
        join_all(requests).await.into_iter().map(|sample| sample.context("a request was dropped")).collect()
    }

    fn call(&self, planned: &Planned) -> Call {
        let body = json!({
            "model": MODEL,
            "prompt": planned.prompt,
            "max_tokens": self.output_tokens,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        Call::json("/v1/completions", &body)
    }
}

fn sample(planned: &Planned, answer: Result<Answer>, speedup: f64) -> Sample {
    let mut sample = Sample {
        prefix: planned.prefix,
        use_number: planned.use_number,
        failure: None,
        endpoint: String::new(),
        outcome: String::new(),
        predicted_tokens: None,
        cached_tokens: 0,
        prompt_tokens: 0,
        ttft: Duration::ZERO,
    };
    let read = answer.and_then(|answer| {
        let receipt = answer.receipt();
        sample.endpoint = receipt.endpoint;
        sample.outcome = receipt.outcome;
        sample.predicted_tokens = receipt.cached_tokens;
        sample.ttft = answer.first_byte.mul_f64(speedup);
        answer.usage()
    });
    match read {
        Ok(usage) => {
            sample.prompt_tokens = usage.prompt_tokens;
            sample.cached_tokens = usage.cached_tokens.unwrap_or(0);
        }
        Err(error) => sample.failure = Some(format!("{error:#}")),
    }
    sample
}

/// Endpoints that served at least one request with each prefix, counted: 1 where all its uses went to one place.
pub fn endpoints_per_prefix(samples: &[Sample], prefix: usize) -> usize {
    let served = samples.iter().filter(|sample| sample.prefix == prefix && sample.failure.is_none());
    served.map(|sample| sample.endpoint.as_str()).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_load_has_its_figures() {
        let load = Load::three_uses();
        let plan = load.plan();
        assert_eq!(plan.len(), 480);
        assert!((load.ideal_hit_rate() - 0.653).abs() < 0.001);
        let seconds = plan[479].at.as_secs_f64();
        assert!((40.0..60.0).contains(&seconds), "{seconds}");
        assert!(plan.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let shared = prompts_share(&plan[0].prompt, &plan[1].prompt);
        assert!((3072..3080).contains(&shared), "{shared}");
        assert!(prompts_share(&plan[2].prompt, &plan[3].prompt) < 8);
    }

    fn prompts_share(a: &str, b: &str) -> usize {
        a.split_whitespace().zip(b.split_whitespace()).take_while(|(a, b)| a == b).count()
    }
}
