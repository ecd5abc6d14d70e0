//! Loads of the lab through real Envoy, filter and indexer, with emulated engines in place of simulated replicas.
//!
//! ```text
//! Load ─▶ Planned ─▶ client ─▶ Envoy + filter + indexer ─▶ engines
//!                      └──────▶ Outcomes, Samples ─▶ Run ─▶ the same figures as of a simulated run
//! ```
//!
//! Times are the engines' own: engines that run 3 times as fast are asked 3 times as often, and what is measured is
//! multiplied by 3.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::future::join_all;
use serde_json::json;
use tokio::sync::Semaphore;
use warmpath_lab::load::{Incident, Load, Request, Start};
use warmpath_lab::outcome::{Outcome, Run, Sample};
use warmpath_lab::replica::{Counters, ReplicaSpec};
use warmpath_lab::simulation::Settings;

use crate::case::fresh_dir;
use crate::client::{Answer, Call, Client};
use crate::engine::{Engine, EngineSpec};
use crate::load::Load as DemoLoad;
use crate::prompts;
use crate::stack::{MODEL, Stack};

/// Places of a closed loop that become free at once would send at once, and requests with the same prefix would overtake
/// each other between decision and engine.
const SEND_GAP: Duration = Duration::from_millis(2);

/// One client's view of the fleet.
#[derive(Clone)]
struct Driver {
    client: Client,
    address: String,
    speedup: f64,
    started: Instant,
    /// Places of the engines by their addresses.
    seats: Arc<BTreeMap<String, usize>>,
    settings: Settings,
}

/// Plays a load under a policy. Logs go to `dir`.
pub async fn run(load: &Load, policy: &str, speedup: f64, dir: &Path) -> Result<Run> {
    let dir = fresh_dir(&dir.join(load.name).join(policy));
    let spec = load.replica.clone();
    let stack = Stack::builder()?
        .engines(load.replicas)
        .policy(policy)
        .each_engine(move |engine| emulate(engine, &spec, speedup))
        .filter(move |filter| {
            filter["report_interval_ms"] = DemoLoad::report_interval_ms(speedup).into();
        });
    let stack = stack.start(&dir).await?;
    let seats = stack.engines.iter().enumerate().map(|(seat, engine)| (engine.address(), seat)).collect();
    let driver = Driver {
        client: stack.client.clone(),
        address: stack.envoy.address(),
        speedup,
        started: Instant::now(),
        seats: Arc::new(seats),
        settings: Settings::default(),
    };
    let watching = watch(&stack.engines, &driver);
    let troubling = trouble(&stack.engines, load, &driver);
    let outcomes = driver.drive(load);
    let mut samples = Vec::new();
    let outcomes = tokio::select! {
        outcomes = async { Ok::<_, anyhow::Error>(tokio::try_join!(outcomes, troubling)?.0) } => outcomes?,
        never = watching.run(&mut samples) => match never {},
    };
    let mut sent = vec![0; load.replicas];
    for outcome in &outcomes {
        if let Some(count) = sent.get_mut(outcome.seat) {
            *count += 1;
        }
    }
    let is_consistent = outcomes.iter().all(|outcome| outcome.failed != outcome.last.is_some());
    Ok(Run {
        load: load.name.to_owned(),
        policy: policy.to_owned(),
        first_wave: load.first_wave,
        outcomes,
        outputs: load.requests.iter().map(|request| request.output).collect(),
        samples,
        counters: counters(&stack.engines).await?,
        sent,
        is_consistent,
    })
}

fn emulate(engine: &mut EngineSpec, spec: &ReplicaSpec, speedup: f64) {
    engine.speedup = speedup;
    engine.block_size = spec.block_tokens;
    // It keeps one back.
    engine.blocks = spec.blocks + 1;
    engine.prefill_tokens_per_second = spec.timing.prefill_tokens_per_second as u32;
    engine.flags.extend([
        format!("--step-ms={}", spec.timing.step_overhead.as_millis()),
        format!("--decode-us={}", spec.timing.decode_cost.as_micros()),
        format!("--max-batched-tokens={}", spec.max_batched_tokens),
        format!("--max-seqs={}", spec.max_seqs),
    ]);
}

// === impl Driver ===

impl Driver {
    /// Now, in the engines' time.
    fn now(&self) -> Duration {
        self.started.elapsed().mul_f64(self.speedup)
    }

    async fn sleep_until(&self, at: Duration) {
        tokio::time::sleep(at.div_f64(self.speedup).saturating_sub(self.started.elapsed())).await;
    }

    async fn drive(&self, load: &Load) -> Result<Vec<Outcome>> {
        let free = Arc::new(Semaphore::new(load.concurrency.unwrap_or(Semaphore::MAX_PERMITS)));
        let mut requests = Vec::new();
        for request in &load.requests {
            let Start::At(at) = request.start else {
                bail!("{} has requests that follow others; only the simulator plays those", load.name)
            };
            let permit = Arc::clone(&free).acquire_owned().await.context("the load was closed")?;
            self.sleep_until(at).await;
            if load.concurrency.is_some() {
                tokio::time::sleep(SEND_GAP).await;
            }
            let (driver, call) = (self.clone(), call(request));
            requests.push(tokio::spawn(async move {
                let outcome = driver.ask(call).await;
                drop(permit);
                outcome
            }));
        }
        join_all(requests).await.into_iter().map(|outcome| outcome.context("a request was dropped")).collect()
    }

    /// Sends a request until it is answered, or as often as a client would.
    async fn ask(&self, call: Call) -> Outcome {
        let mut outcome = Outcome { sent: Some(self.now()), ..Outcome::default() };
        loop {
            let sent = self.now();
            outcome.tries += 1;
            match self.client.send(&self.address, call.clone()).await {
                Ok(answer) if answer.status == 200 => {
                    self.note(&mut outcome, sent, &answer);
                    return outcome;
                }
                _ if outcome.tries < self.settings.tries => {
                    let wait = self.settings.retry_after * 2u32.pow(outcome.tries - 1);
                    tokio::time::sleep(wait.div_f64(self.speedup)).await;
                }
                _ => {
                    outcome.failed = true;
                    return outcome;
                }
            }
        }
    }

    fn note(&self, outcome: &mut Outcome, sent: Duration, answer: &Answer) {
        let Ok(usage) = answer.usage() else {
            outcome.failed = true;
            return;
        };
        let count = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
        let receipt = answer.receipt();
        outcome.first = Some(sent + answer.first_byte.mul_f64(self.speedup));
        outcome.last = Some(sent + answer.total.mul_f64(self.speedup));
        outcome.seat = self.seats.get(&receipt.endpoint).copied().unwrap_or(usize::MAX);
        outcome.prompt_tokens = count(usage.prompt_tokens);
        outcome.cached = count(usage.cached_tokens.unwrap_or(0));
        outcome.predicted = count(receipt.cached_tokens.unwrap_or(0));
    }
}

fn call(request: &Request) -> Call {
    let prompt: String =
        request.prompt.texts.iter().map(|(name, tokens)| prompts::text(*name, *tokens as usize)).collect();
    let body = json!({
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": request.output,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    Call::json("/v1/completions", &body)
}

/// Makes engines misbehave when the load says so.
async fn trouble(engines: &[Engine], load: &Load, driver: &Driver) -> Result<()> {
    for (at, incident) in &load.incidents {
        driver.sleep_until(*at).await;
        let (seat, fault) = match *incident {
            Incident::Slow(seat, factor) => (seat, json!({ "slow": factor })),
            Incident::Failing(seat, true) => {
                (seat, json!({ "http": { "error": { "status": 500, "share": 1.0 } } }))
            }
            Incident::Failing(seat, false) => (seat, json!({ "clear": true })),
            Incident::Join | Incident::Drain(_) => {
                bail!("{}: fleets that change are for the simulator only", load.name)
            }
        };
        engines.get(seat).context("no such engine")?.faults(&fault).await?;
    }
    Ok(())
}

/// Reads the engines' metrics over and over.
struct Watch<'a> {
    engines: &'a [Engine],
    driver: &'a Driver,
}

fn watch<'a>(engines: &'a [Engine], driver: &'a Driver) -> Watch<'a> {
    Watch { engines, driver }
}

// === impl Watch ===

impl Watch<'_> {
    async fn run(&self, samples: &mut Vec<Sample>) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(self.driver.settings.scrape_every.div_f64(self.driver.speedup)).await;
            let mut sample =
                Sample { at: self.driver.now(), in_flight: Vec::new(), kv_usage: 0.0, waiting: 0 };
            for engine in self.engines {
                let Ok(metrics) = engine.metrics().await else { break };
                let of = |name: &str| metrics.sum(name, &[]);
                let waiting = of("vllm:num_requests_waiting") as usize;
                sample.in_flight.push(of("vllm:num_requests_running") as usize + waiting);
                sample.waiting += waiting;
                sample.kv_usage += of("vllm:kv_cache_usage_perc") / self.engines.len() as f64;
            }
            if sample.in_flight.len() == self.engines.len() {
                samples.push(sample);
            }
        }
    }
}

async fn counters(engines: &[Engine]) -> Result<Vec<Counters>> {
    let mut all = Vec::new();
    for engine in engines {
        let (metrics, cache) = (engine.metrics().await?, engine.prefix_cache().await?);
        all.push(Counters {
            queries: cache.queries as u64,
            hits: cache.hits as u64,
            preemptions: metrics.sum("vllm:num_preemptions_total", &[]) as u64,
            ..Counters::default()
        });
    }
    Ok(all)
}
