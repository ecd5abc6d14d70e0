//! One engine through the whole run: it serves, meets a fault, and rests until the index is exact.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, stream};
use rand::Rng as _;
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::audit::{Found, compare};
use crate::client::{Call, Client};
use crate::engine::Engine;
use crate::indexer::Indexer;

use super::fault::Fault;
use super::report::Recovery;
use super::{EXACT_PATIENCE, MODEL, Plan};

/// Requests under way at once.
const AT_ONCE: usize = 2;

/// Requests after a fault, before the engine rests.
const AFTER_FAULT: usize = 12;

/// Between two looks at the indexer's state.
const POLL: Duration = Duration::from_millis(5);

/// Blocks that prompts of one family begin with, families, and blocks of a prompt of its own.
const COMMON_BLOCKS: usize = 8;
const FAMILIES: u32 = 8;
const OWN_BLOCKS: std::ops::Range<usize> = 4..57;
const BLOCK: usize = 16;

pub(super) struct Lane<'a> {
    plan: &'a Plan,
    pub(super) engine: Engine,
    indexer: &'a Indexer,
    client: Client,
    random: Pcg64Mcg,
    pub(super) recoveries: Vec<Recovery>,
}

/// What the indexer says of a stream.
struct Stream {
    trust: String,
    last_seq: Option<u64>,
}

// === impl Lane ===

impl<'a> Lane<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        engine: Engine,
        indexer: &'a Indexer,
        client: Client,
        random: Pcg64Mcg,
    ) -> Self {
        Self { plan, engine, indexer, client, random, recoveries: Vec::new() }
    }

    pub(super) async fn run(&mut self) -> Result<()> {
        while self.indexer.metrics().await?.sum("warmpath_kv_events_total", &[]) < self.plan.events as f64 {
            self.serve(self.plan.requests_between).await;
            let fault = Fault::choose(&mut self.random, self.plan.has_slow_faults);
            let ended = self.suffer(fault).await.with_context(|| format!("{fault:?}"))?;
            let was_degraded = self.rest(ended).await.with_context(|| {
                format!(
                    "{} after {fault:?}, the {}th fault",
                    self.engine.address(),
                    self.recoveries.len() + 1
                )
            })?;
            self.recoveries.push(Recovery { fault, took: ended.elapsed(), was_degraded });
        }
        Ok(())
    }

    /// Serves so many requests. Some may fail: the engine may be down.
    async fn serve(&mut self, requests: usize) {
        let calls: Vec<Call> = (0..requests).map(|_| self.request()).collect();
        let address = self.engine.address();
        let sent = stream::iter(calls).map(|call| self.client.send(&address, call));
        sent.buffer_unordered(AT_ONCE).for_each(async |answer| drop(answer)).await;
    }

    fn request(&mut self) -> Call {
        let family = self.random.random_range(0..FAMILIES);
        let own = self.random.random_range(OWN_BLOCKS) * BLOCK + self.random.random_range(0..BLOCK);
        let common = (0..COMMON_BLOCKS * BLOCK).map(|at| family * 1_000 + at as u32);
        let prompt: Vec<u32> =
            common.chain((0..own).map(|_| self.random.random_range(10_000..90_000))).collect();
        Call::json("/v1/completions", &json!({ "model": MODEL, "prompt": prompt, "max_tokens": 1 }))
    }

    /// Lets it happen. Returns when it was over; the engine has published since then, unless the fault is that it has not.
    async fn suffer(&mut self, fault: Fault) -> Result<Instant> {
        match fault {
            Fault::Kill => {
                self.serve(1).await;
                self.engine.restart().await?;
            }
            Fault::Restart { down_ms } => {
                self.engine.faults(&json!({ "restart": { "down_ms": down_ms } })).await?;
                sleep(Duration::from_millis(down_ms) + RESTART_BEGINS).await;
                self.engine.wait_until_healthy().await?;
            }
            Fault::Pause { ms } => {
                self.engine.process().freeze()?;
                sleep(Duration::from_millis(ms)).await;
                self.engine.process().thaw()?;
            }
            Fault::Drop { batches } => self.order(json!({ "drop": batches })).await?,
            Fault::Duplicate { batches } => self.order(json!({ "duplicate": batches })).await?,
            Fault::Reorder { batches } => self.order(json!({ "reorder": batches })).await?,
            Fault::Delay { batches, ms } => {
                self.order(json!({ "delay": { "batches": batches, "ms": ms } })).await?;
            }
            Fault::Reset => self.engine.reset_prefix_cache().await?,
            Fault::Unanswered { batches, questions } => {
                self.order(json!({ "drop": batches, "unanswered": questions })).await?;
            }
            Fault::Tail => {
                self.order(json!({ "drop": u32::MAX })).await?;
                self.serve(1).await;
                self.engine.faults(&json!({ "clear": true })).await?;
                return Ok(Instant::now());
            }
            Fault::Lose { batches } => {
                self.order(json!({ "lose": batches })).await?;
                self.serve(AFTER_FAULT).await;
                self.engine.reset_prefix_cache().await?;
            }
        }
        let ended = Instant::now();
        self.serve(AFTER_FAULT).await;
        Ok(ended)
    }

    async fn order(&self, events: Value) -> Result<()> {
        self.engine.faults(&json!({ "events": events })).await
    }

    /// Waits until the index equals the engine's cache. Where it is incomplete and says so, the cache is emptied; returns
    /// whether that was so.
    async fn rest(&mut self, since: Instant) -> Result<bool> {
        let mut was_degraded = false;
        loop {
            let told = self.engine.batches().await? as u64;
            let stream = self.stream().await?;
            let has_all = stream.last_seq.map_or(0, |last| last + 1) == told;
            let mut instead = format!("{} with {:?} of {told} batches", stream.trust, stream.last_seq);
            if has_all && stream.trust == "degraded" {
                was_degraded = true;
                self.engine.reset_prefix_cache().await?;
                self.serve(1).await;
            }
            if has_all && stream.trust == "live" {
                match compare(&self.client, &self.engine, 0, self.indexer).await? {
                    Found::Compared(found) if found.is_none() => return Ok(was_degraded),
                    Found::Compared(found) => bail!("live, and not exact: {found}"),
                    Found::Partly(found, reason) => instead = format!("degraded, {reason}: {found}"),
                    Found::NotYet(why) | Found::Nothing(why) => instead = why,
                }
            }
            if since.elapsed() > EXACT_PATIENCE {
                bail!("not exact after {} s: {instead}", EXACT_PATIENCE.as_secs());
            }
            sleep(POLL).await;
        }
    }

    async fn stream(&self) -> Result<Stream> {
        let state = self.indexer.state().await?;
        let endpoints = state["endpoints"].as_array().context("no endpoints")?;
        let own = endpoints.iter().find(|endpoint| endpoint["endpoint"] == self.engine.address());
        let stream = &own.context("the engine is not listed")?["ranks"][0]["stream"];
        let trust = stream["trust"].as_str().context("no trust")?.to_owned();
        Ok(Stream { trust, last_seq: stream["last_seq"].as_u64() })
    }
}

/// An ordered restart begins after its order was answered.
const RESTART_BEGINS: Duration = Duration::from_millis(50);
