//! Requests at a constant rate, whatever becomes of those before, each with what became of it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::join_all;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use serde_json::json;

use super::MODEL;
use super::blame::Failed;
use crate::client::{Answer, Call, Client};

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Requests in a second.
    pub rate: f64,
    /// For how long.
    pub length: Duration,
    /// Of prompts.
    pub seed: u64,
}

/// Prompts of a family begin alike.
const FAMILIES: u32 = 12;
const COMMON_TOKENS: u32 = 320;
const OWN_TOKENS: std::ops::Range<usize> = 1..96;
/// Some answers are over at once, some outlast a fault's beginning.
const OUTPUT_TOKENS: std::ops::Range<u32> = 1..48;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// When it was sent, in milliseconds after the beginning.
    pub sent_ms: u64,
    /// When it was over.
    pub ended_ms: u64,
    /// Until the first byte of the answer, in microseconds.
    pub first_byte_us: u64,
    /// Who served it; empty where nobody says.
    pub endpoint: String,
    /// `scored`, `load_only`, `fallback` or `passed`; empty where the filter said nothing.
    pub outcome: String,
    /// Why it was not scored.
    pub reason: String,
    /// Tokens of the prompt, and those of them that the engine had, as it says.
    pub prompt_tokens: u64,
    /// See there.
    pub cached_tokens: u64,
    /// What went wrong, if anything did.
    pub failure: Option<String>,
}

// === impl Traffic ===

impl Traffic {
    /// Sends all of it to `address` and waits for every end. Times are from `begun` on.
    pub async fn run(&self, client: &Client, address: &str, begun: Instant) -> Result<Vec<Sent>> {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        let count = (self.rate * self.length.as_secs_f64()) as u32;
        let mut requests = Vec::new();
        for number in 0..count {
            let call = request(&mut random);
            let due = Duration::from_secs_f64(f64::from(number) / self.rate);
            tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
            let (client, address) = (client.clone(), address.to_owned());
            requests.push(tokio::spawn(async move {
                let sent = begun.elapsed();
                let answer = client.send_until_it_breaks(&address, call).await;
                Sent::of(sent, begun.elapsed(), answer)
            }));
        }
        join_all(requests).await.into_iter().map(|sent| sent.context("a request was dropped")).collect()
    }
}

fn request(random: &mut Pcg64Mcg) -> Call {
    let family = random.random_range(0..FAMILIES);
    let common = (0..COMMON_TOKENS).map(|at| family * 1000 + at);
    let own = random.random_range(OWN_TOKENS);
    let prompt: Vec<u32> = common.chain((0..own).map(|_| random.random_range(20_000..90_000))).collect();
    let streams = random.random_bool(0.7);
    let mut body = json!({
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": random.random_range(OUTPUT_TOKENS),
        "stream": streams,
    });
    if streams {
        body["stream_options"] = json!({ "include_usage": true });
    }
    Call::json("/v1/completions", &body)
}

// === impl Sent ===

impl Sent {
    fn of(sent: Duration, ended: Duration, answer: Result<(Answer, Option<String>)>) -> Self {
        let mut one = Self {
            sent_ms: millis(sent),
            ended_ms: millis(ended),
            first_byte_us: 0,
            endpoint: String::new(),
            outcome: String::new(),
            reason: String::new(),
            prompt_tokens: 0,
            cached_tokens: 0,
            failure: None,
        };
        let (answer, broken) = match answer {
            Ok(both) => both,
            Err(error) => return Self { failure: Some(format!("{error:#}")), ..one },
        };
        let receipt = answer.receipt();
        (one.endpoint, one.outcome, one.reason) = (receipt.endpoint, receipt.outcome, receipt.reason);
        one.first_byte_us = u64::try_from(answer.first_byte.as_micros()).unwrap_or(u64::MAX);
        one.failure = match broken {
            Some(why) => Some(format!("{} broke off: {why}", answer.status)),
            None if answer.status != 200 => Some(format!("{} {}", answer.status, answer.text())),
            None => match answer.usage() {
                Ok(usage) => {
                    one.prompt_tokens = usage.prompt_tokens;
                    one.cached_tokens = usage.cached_tokens.unwrap_or(0);
                    None
                }
                // Every answer that is whole ends with its usage.
                Err(error) => Some(format!("{error:#}")),
            },
        };
        one
    }

    /// What is needed to say whose fault it is; None: it did not fail.
    pub fn failed(&self) -> Option<Failed> {
        let why = self.failure.clone()?;
        Some(Failed { sent_ms: self.sent_ms, ended_ms: self.ended_ms, endpoint: self.endpoint.clone(), why })
    }

    /// Nobody who knows loads and caches decided.
    pub fn is_blind(&self) -> bool {
        self.failure.is_none() && self.outcome != "scored" && self.outcome != "load_only"
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
