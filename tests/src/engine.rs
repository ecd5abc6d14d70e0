//! An emulated engine as a process of its own.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::client::{Call, Client};
use crate::eventually::{Look, eventually, seen_if};
use crate::machine::Machine;
use crate::metrics::Metrics;
use crate::paths;
use crate::ports::{LOOPBACK, Port};
use crate::process::Process;

/// What kind of engine is emulated. The defaults suit a case: small, and a hundred times faster than a real one.
#[derive(Clone, Debug)]
pub struct EngineSpec {
    /// Base model that it serves.
    pub model: String,
    /// Folder of its tokenizer; without one it takes prompts as token ids only.
    pub tokenizer: Option<PathBuf>,
    /// Decides the encoding of its events.
    pub vllm_version: String,
    /// Tokens of a block.
    pub block_size: u32,
    /// Blocks of its cache.
    pub blocks: u32,
    /// Data-parallel ranks.
    pub ranks: u16,
    /// How many times faster than the engine its clock runs.
    pub speedup: f64,
    /// Speed of its prefill, in the engine's own time.
    pub prefill_tokens_per_second: u32,
    /// Publishes KV events and answers replays.
    pub events: bool,
    /// Where it listens.
    pub ip: IpAddr,
    /// Names of LoRA adapters.
    pub loras: Vec<String>,
    /// Runs on a machine of its own.
    pub own_machine: bool,
    /// Further flags of the emulator, as its README lists them.
    pub flags: Vec<String>,
}

impl EngineSpec {
    /// An engine for this model, whose tokenizer is in `tokenizer`.
    pub fn new(model: &str, tokenizer: Option<PathBuf>) -> Self {
        Self {
            model: model.to_owned(),
            tokenizer,
            vllm_version: "0.32".to_owned(),
            block_size: 16,
            blocks: 4096,
            ranks: 1,
            speedup: 100.0,
            prefill_tokens_per_second: 8000,
            events: true,
            ip: LOOPBACK,
            loras: Vec::new(),
            own_machine: false,
            flags: Vec::new(),
        }
    }

    fn args(&self, ports: &Ports) -> Vec<String> {
        let mut args = vec![
            "--http".to_owned(),
            ports.http.to_string(),
            "--model".to_owned(),
            self.model.clone(),
            "--vllm-version".to_owned(),
            self.vllm_version.clone(),
            format!("--block-size={}", self.block_size),
            format!("--blocks={}", self.blocks),
            format!("--ranks={}", self.ranks),
            format!("--speedup={}", self.speedup),
            format!("--prefill-tokens-per-second={}", self.prefill_tokens_per_second),
        ];
        if self.events {
            args.extend([format!("--events={}", ports.events()), format!("--replay={}", ports.replay())]);
        }
        if let Some(folder) = &self.tokenizer {
            args.push(format!("--tokenizer={}", folder.display()));
        }
        args.extend(self.loras.iter().map(|name| format!("--lora={name}")));
        args.extend(self.flags.iter().cloned());
        args
    }
}

#[derive(Debug)]
struct Ports {
    http: Port,
    /// One for the events of each rank, then one for the replays of each.
    streams: Vec<Port>,
}

impl Ports {
    fn claim(ip: IpAddr, ranks: u16) -> Result<Self> {
        Ok(Self { http: Port::claim_on(ip)?, streams: Port::claim_row(ip, 2 * ranks.max(1))? })
    }

    fn events(&self) -> String {
        self.streams.first().map(|port| format!("tcp://{port}")).unwrap_or_default()
    }

    fn replay(&self) -> String {
        self.streams.get(self.streams.len() / 2).map(|port| format!("tcp://{port}")).unwrap_or_default()
    }
}

/// A running engine. Restarted, it keeps its ports, as a pod that restarts in place keeps its address.
#[derive(Debug)]
pub struct Engine {
    spec: EngineSpec,
    ports: Ports,
    process: Process,
    name: String,
    dir: PathBuf,
    client: Client,
}

impl Engine {
    /// Starts one and waits until it is healthy.
    pub async fn start(name: &str, spec: EngineSpec, dir: &Path) -> Result<Self> {
        let ports = Ports::claim(spec.ip, spec.ranks)?;
        let machine = spec.own_machine.then(|| Machine::new(name, dir)).transpose()?;
        let process = Process::start_on(machine, name, &paths::emulator()?, spec.args(&ports), dir)?;
        let client = Client::default();
        let mut engine = Self { spec, ports, process, name: name.to_owned(), dir: dir.to_owned(), client };
        engine.wait_until_healthy().await?;
        Ok(engine)
    }

    /// Ends it like a crash and starts it again: same address, empty cache, sequence numbers from 0.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill()?;
        self.launch_again()?;
        self.wait_until_healthy().await
    }

    /// Starts it again after it was killed, and does not wait until it answers.
    pub fn launch_again(&mut self) -> Result<()> {
        let (machine, args) = (self.process.machine(), self.spec.args(&self.ports));
        self.process = Process::start_on(machine, &self.name, &paths::emulator()?, args, &self.dir)?;
        Ok(())
    }

    /// Waits until it answers.
    pub async fn wait_until_healthy(&mut self) -> Result<()> {
        eventually("the engine is healthy", async || {
            if !self.process.is_running() {
                return Ok(Look::Never(format!("{} ended: {}", self.name, self.process.log())));
            }
            let answer = self.client.send(&self.address(), Call::get("/health")).await?;
            seen_if(answer.status == 200, answer.text())
        })
        .await
    }

    /// `ip:port` of its HTTP server.
    pub fn address(&self) -> String {
        self.ports.http.to_string()
    }

    /// What it is.
    pub fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    /// `tcp://ip:port` of rank 0's events and replays, where it has them.
    pub fn streams(&self) -> Option<(String, String)> {
        self.spec.events.then(|| (self.ports.events(), self.ports.replay()))
    }

    /// Its process, to freeze, end or read.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its own statistics.
    pub async fn metrics(&self) -> Result<Metrics> {
        Ok(Metrics::parse(&self.client.send(&self.address(), Call::get("/metrics")).await?.text()))
    }

    /// Hit and queried tokens of its prefix cache since it started.
    pub async fn prefix_cache(&self) -> Result<PrefixCache> {
        let metrics = self.metrics().await?;
        Ok(PrefixCache {
            hits: metrics.sum("vllm:prefix_cache_hits_total", &[]),
            queries: metrics.sum("vllm:prefix_cache_queries_total", &[]),
        })
    }

    /// Event batches that it has published since it started, all ranks together.
    pub async fn batches(&self) -> Result<f64> {
        let state = self.client.send(&self.address(), Call::get("/emulator/state")).await?.json()?;
        let ranks = state["ranks"].as_array().context("no ranks in the emulator's state")?;
        Ok(ranks.iter().filter_map(|rank| rank["batches"].as_f64()).sum())
    }

    /// Empties its prefix cache, as an operator would.
    pub async fn reset_prefix_cache(&self) -> Result<()> {
        self.post("/reset_prefix_cache", &Value::Null).await
    }

    /// Lets it give its cache up and sleep.
    pub async fn sleep(&self) -> Result<()> {
        self.post("/sleep?level=1", &Value::Null).await
    }

    /// Ends that.
    pub async fn wake_up(&self) -> Result<()> {
        self.post("/wake_up", &Value::Null).await
    }

    /// Makes it misbehave; see the emulator's documentation of `/emulator/faults`.
    pub async fn faults(&self, faults: &Value) -> Result<()> {
        self.post("/emulator/faults", faults).await
    }

    async fn post(&self, path: &str, body: &Value) -> Result<()> {
        let answer = self.client.send(&self.address(), Call::json(path, body)).await?;
        ensure!((200..300).contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
        Ok(())
    }

    /// Token ids of a text, by its tokenizer.
    pub async fn tokenize(&self, text: &str) -> Result<Vec<u32>> {
        let body =
            serde_json::json!({ "model": self.spec.model, "prompt": text, "add_special_tokens": false });
        let answer = self.client.send(&self.address(), Call::json("/tokenize", &body)).await?.json()?;
        let tokens = answer["tokens"].as_array().context("no tokens in the answer of /tokenize")?;
        tokens
            .iter()
            .map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()).context("no token id"))
            .collect()
    }
}

/// Counters of an engine's prefix cache, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PrefixCache {
    /// Found.
    pub hits: f64,
    /// Asked for.
    pub queries: f64,
}

impl PrefixCache {
    /// Of several engines together.
    pub fn sum(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::default(), |sum, one| Self {
            hits: sum.hits + one.hits,
            queries: sum.queries + one.queries,
        })
    }

    /// Share of the prompt tokens that was found; 0 where nothing was asked for.
    pub fn hit_rate(&self) -> f64 {
        if self.queries > 0.0 { self.hits / self.queries } else { 0.0 }
    }
}
