//! Everything at once: engines, indexers and Envoy, started in the order in which they need each other.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::client::{Answer, Call, Client};
use crate::engine::{Engine, EngineSpec};
use crate::envoy::{Bootstrap, Envoy};
use crate::eventually::{eventually, seen_if};
use crate::indexer::{self, Indexer, IndexerPorts};
use crate::machine::Machine;
use crate::paths;
use crate::ports::LOOPBACK;
use crate::recorder::Recorder;
use crate::scripted::{Script, ScriptedIndexer};

/// The model of the emulated engines, and the folder of its tokenizer.
pub const MODEL: &str = "qwen3";

/// How long the filter of a case waits for the indexer: long, so that a busy machine decides no case. Cases about the
/// deadline set their own.
const TIMEOUT_MS: u64 = 2000;

/// Workers of Envoy: more than one, because each has a VM and a state of its own.
const WORKERS: usize = 2;

type PatchJson = Box<dyn FnOnce(&mut Value) -> Result<()>>;
type PatchBootstrap = Box<dyn FnOnce(&mut Bootstrap) -> Result<()>>;

/// What to start. The defaults: two engines with tokenizers, one indexer with the cost policy.
pub struct StackBuilder {
    engines: Vec<EngineSpec>,
    recorders: Vec<IpAddr>,
    dead_hosts: Vec<String>,
    indexers: usize,
    script: Option<Script>,
    policy: String,
    speculates: bool,
    workers: usize,
    own_machines: bool,
    /// Seconds that a replaced listener drains, where it may be replaced.
    drain_s: Option<u32>,
    module: Option<Vec<u8>>,
    filter: Vec<PatchJson>,
    indexer: Vec<PatchJson>,
    bootstrap: Vec<PatchBootstrap>,
}

/// What was started. Everything ends with it.
#[derive(Debug)]
pub struct Stack {
    /// Emulated engines.
    pub engines: Vec<Engine>,
    /// Engines that only write down what reaches them.
    pub recorders: Vec<Recorder>,
    /// Real indexers.
    pub indexers: Vec<Indexer>,
    /// In place of them, where the case asked for one.
    scripted: Option<ScriptedIndexer>,
    /// Real Envoy.
    pub envoy: Envoy,
    /// For requests to any of them.
    pub client: Client,
    speculates: bool,
    dir: PathBuf,
}

impl Stack {
    /// Begins a description.
    pub fn builder() -> Result<StackBuilder> {
        let engine = EngineSpec::new(MODEL, Some(paths::tokenizer(MODEL)?));
        Ok(StackBuilder {
            engines: vec![engine.clone(), engine],
            recorders: Vec::new(),
            dead_hosts: Vec::new(),
            indexers: 1,
            script: None,
            policy: "cost".to_owned(),
            speculates: true,
            workers: WORKERS,
            own_machines: false,
            drain_s: None,
            module: None,
            filter: Vec::new(),
            indexer: Vec::new(),
            bootstrap: Vec::new(),
        })
    }

    /// Sends a request through Envoy.
    pub async fn send(&self, call: Call) -> Result<Answer> {
        self.client.send(&self.envoy.address(), call).await
    }

    /// The same, and then waits until every indexer knows that the request is over: its load does not count for the next.
    pub async fn send_alone(&self, call: Call) -> Result<Answer> {
        let answer = self.send(call).await?;
        for indexer in &self.indexers {
            eventually("the indexer knows that the request is over", async || {
                let reservations = indexer.state().await?["reservations"].clone();
                seen_if(reservations == 0, format!("{reservations} reservations"))
            })
            .await?;
        }
        Ok(answer)
    }

    /// The same for a request that must be scored, and of which the engine must find exactly what was predicted, from its
    /// own events alone: so the ids that were chained here are those that the engine computed.
    pub async fn send_predicted(&self, call: Call) -> Result<Answer> {
        ensure!(
            !self.speculates,
            "what was speculated on proves nothing: build the stack `without_speculation`"
        );
        let answer = self.send_alone(call).await?;
        self.wait_for_events().await?;
        let receipt = answer.receipt();
        ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
        ensure!(receipt.outcome == "scored", "{receipt:?}");
        let usage = answer.usage()?;
        let agree = receipt.prompt_tokens == Some(usage.prompt_tokens)
            && receipt.cached_tokens == Some(usage.cached_tokens.unwrap_or(0));
        ensure!(agree, "predicted: {receipt:?}, true: {usage:?}");
        Ok(answer)
    }

    /// Addresses of everything that serves requests.
    pub fn endpoints(&self) -> Vec<String> {
        let engines = self.engines.iter().map(Engine::address);
        engines.chain(self.recorders.iter().map(Recorder::address)).collect()
    }

    /// The engine at this address.
    pub fn engine_at(&mut self, address: &str) -> Result<&mut Engine> {
        let found = self.engines.iter_mut().find(|engine| engine.address() == address);
        found.with_context(|| format!("no engine at `{address}`"))
    }

    /// The only indexer, or the first.
    pub fn indexer(&mut self) -> Result<&mut Indexer> {
        self.indexers.first_mut().context("a stack without an indexer")
    }

    /// The scripted indexer.
    pub fn scripted(&self) -> Result<&ScriptedIndexer> {
        self.scripted.as_ref().context("a stack without a scripted indexer")
    }

    /// Where logs and configurations of this stack are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What must hold after every case, whatever it did: no VM died, and what should run runs. The mistakes found.
    pub fn complaints(&mut self, expected: &AfterCase) -> Vec<String> {
        let mut complaints = Vec::new();
        let envoy_log = self.envoy.process().log();
        for words in ["panicked at", "Wasm VM failed", "Function: proxy_", "[critical]", "Segmentation fault"]
        {
            if !expected.vm_may_die && envoy_log.contains(words) {
                complaints.push(format!("Envoy's log says `{words}`"));
            }
        }
        if !self.envoy.process().is_running() {
            complaints.push("Envoy has ended".to_owned());
        }
        for indexer in &mut self.indexers {
            let process = indexer.process();
            if process.log().contains("panicked at") {
                complaints.push(format!("{} panicked", process.name()));
            }
            if !expected.indexers_may_be_gone && !process.is_running() {
                complaints.push(format!("{} has ended", process.name()));
            }
        }
        complaints
    }
}

/// What a case is allowed to leave behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AfterCase {
    /// It killed an indexer for good.
    pub indexers_may_be_gone: bool,
    /// It made the filter's VM die on purpose.
    pub vm_may_die: bool,
}

impl StackBuilder {
    /// This many engines of the default kind.
    #[must_use]
    pub fn engines(mut self, count: usize) -> Self {
        let kind = self.engines.first().cloned();
        self.engines = kind.into_iter().cycle().take(count).collect();
        self
    }

    /// Changes the engine of this number.
    #[must_use]
    pub fn engine(mut self, number: usize, change: impl FnOnce(&mut EngineSpec)) -> Self {
        if let Some(engine) = self.engines.get_mut(number) {
            change(engine);
        }
        self
    }

    /// Changes every engine.
    #[must_use]
    pub fn each_engine(mut self, change: impl Fn(&mut EngineSpec)) -> Self {
        self.engines.iter_mut().for_each(change);
        self
    }

    /// Recorders in place of engines.
    #[must_use]
    pub fn recorders(self, count: usize) -> Self {
        self.recorders_on(&vec![LOOPBACK; count])
    }

    /// Recorders in place of engines, one on each of these addresses.
    #[must_use]
    pub fn recorders_on(mut self, ips: &[IpAddr]) -> Self {
        self.engines.clear();
        self.recorders = ips.to_vec();
        self
    }

    /// One more host in Envoy's cluster, and in the indexer's configuration, that nobody listens on.
    #[must_use]
    pub fn dead_host(mut self, address: &str) -> Self {
        self.dead_hosts.push(address.to_owned());
        self
    }

    /// This many indexers, all of them peers.
    #[must_use]
    pub fn indexers(mut self, count: usize) -> Self {
        self.indexers = count;
        self
    }

    /// A scripted indexer in place of real ones.
    #[must_use]
    pub fn script(mut self, script: Script) -> Self {
        self.indexers = 0;
        self.script = Some(script);
        self
    }

    /// Another ranking policy.
    #[must_use]
    pub fn policy(mut self, name: &str) -> Self {
        name.clone_into(&mut self.policy);
        self
    }

    /// Indexers that count no block before the engine has told of it.
    #[must_use]
    pub fn without_speculation(mut self) -> Self {
        self.speculates = false;
        self
    }

    /// This many workers of Envoy. With one, what a request did to the filter's state shows in the next.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count;
        self
    }

    /// Every process on a machine of its own, whose clock can jump and whose disk can be full.
    #[must_use]
    pub fn own_machines(mut self) -> Self {
        self.own_machines = true;
        self.each_engine(|engine| engine.own_machine = true)
    }

    /// An Envoy whose listener can be replaced, and then drains for so many seconds.
    #[must_use]
    pub fn reloadable(mut self, drain_s: u32) -> Self {
        self.drain_s = Some(drain_s);
        self
    }

    /// Another module in place of the filter.
    #[must_use]
    pub fn module(mut self, wasm: Vec<u8>) -> Self {
        self.module = Some(wasm);
        self
    }

    /// Changes the filter's configuration.
    #[must_use]
    pub fn filter(mut self, patch: impl FnOnce(&mut Value) + 'static) -> Self {
        self.filter.push(Box::new(|config| {
            patch(config);
            Ok(())
        }));
        self
    }

    /// Changes the indexers' configuration.
    #[must_use]
    pub fn indexer(mut self, patch: impl FnOnce(&mut Value) + 'static) -> Self {
        self.indexer.push(Box::new(|config| {
            patch(config);
            Ok(())
        }));
        self
    }

    /// Changes Envoy's bootstrap.
    #[must_use]
    pub fn bootstrap(mut self, patch: impl FnOnce(&mut Bootstrap) -> Result<()> + 'static) -> Self {
        self.bootstrap.push(Box::new(patch));
        self
    }

    /// Starts everything and waits until it works: engines, then indexers, then Envoy. `dir` takes logs and
    /// configurations, and must be there.
    pub async fn start(self, dir: &Path) -> Result<Stack> {
        // Said at once, not after everything else was started.
        let module = match self.module {
            Some(bytes) => {
                let path = dir.join("module.wasm");
                std::fs::write(&path, bytes)?;
                path
            }
            None => paths::filter_wasm()?,
        };
        let engines = self.engines.into_iter().enumerate();
        let engines =
            engines.map(async |(number, spec)| Engine::start(&format!("engine-{number}"), spec, dir).await);
        let engines = try_join_all(engines).await?;
        let recorders = try_join_all(self.recorders.into_iter().map(Recorder::start)).await?;
        let silent = recorders.iter().map(Recorder::address).chain(self.dead_hosts);
        let silent: Vec<String> = silent.collect();
        let hosts: Vec<String> = engines.iter().map(Engine::address).chain(silent.iter().cloned()).collect();

        let endpoints = engines.iter().map(indexer::endpoint);
        let endpoints: Vec<Value> =
            endpoints.chain(silent.iter().map(|host| json!({ "address": host, "model": MODEL }))).collect();
        let mut config = json!({
            "policy": { "name": self.policy },
            "models": [{ "name": MODEL, "tokenizer_dir": paths::tokenizer(MODEL)? }],
            "endpoints": { "static": endpoints },
            "scrape": { "interval_ms": 100 },
        });
        if !self.speculates {
            config["leases"] = json!({ "speculative_ms": 10 });
        }
        for patch in self.indexer {
            patch(&mut config)?;
        }
        let machine = |name: &str| self.own_machines.then(|| Machine::new(name, dir)).transpose();
        let indexers = start_indexers(self.indexers, &config, machine, dir).await?;

        let scripted = match self.script {
            Some(script) => Some(ScriptedIndexer::start(script).await?),
            None => None,
        };
        let asked = indexers.iter().map(Indexer::grpc_address);
        let asked: Vec<String> = asked.chain(scripted.iter().map(ScriptedIndexer::address)).collect();

        let mut bootstrap = Bootstrap::shipped()?;
        bootstrap.set_module(&module)?;
        bootstrap.set_hosts("llm", &hosts)?;
        bootstrap.set_hosts("indexer", &asked)?;
        let mut filter = bootstrap.filter()?;
        filter["response_header"] = Value::Bool(true);
        filter["indexer"]["timeout_ms"] = json!(TIMEOUT_MS);
        for patch in self.filter {
            patch(&mut filter)?;
        }
        bootstrap.set_filter(&filter)?;
        for patch in self.bootstrap {
            patch(&mut bootstrap)?;
        }
        let envoy = Envoy::start(machine("envoy")?, self.drain_s, bootstrap, self.workers, dir).await?;
        let client = Client::default();
        let (speculates, dir) = (self.speculates, dir.to_owned());
        let stack = Stack { engines, recorders, indexers, scripted, envoy, client, speculates, dir };
        stack.wait_for_streams().await?;
        Ok(stack)
    }
}

impl Stack {
    /// Events are published to whoever is connected: waits until every indexer is, to every engine that has some.
    async fn wait_for_streams(&self) -> Result<()> {
        let streams: usize =
            self.engines.iter().filter(|e| e.spec().events).map(|e| usize::from(e.spec().ranks)).sum();
        for indexer in &self.indexers {
            eventually("the indexer is connected to every engine", async || {
                let connected = indexer.connected_streams().await?;
                seen_if(connected >= streams, format!("{connected} of {streams} streams"))
            })
            .await?;
        }
        Ok(())
    }
}

impl Stack {
    /// Waits until every indexer has read what the engines have told so far, and counts on nothing else.
    pub async fn wait_for_events(&self) -> Result<()> {
        for indexer in &self.indexers {
            eventually("no block is speculated on", async || {
                let index = indexer.state().await?["index"].clone();
                seen_if(index["speculative_blocks"] == 0, index.to_string())
            })
            .await?;
        }
        for engine in self.engines.iter().filter(|engine| engine.spec().events) {
            let told = engine.batches().await?;
            for indexer in &self.indexers {
                eventually("the indexer has read the engine's events", async || {
                    let metrics = indexer.metrics().await?;
                    let endpoint = engine.address();
                    let labels = [("endpoint", endpoint.as_str())];
                    let read = metrics.sum("warmpath_kv_batches_published_total", &labels)
                        + metrics.sum("warmpath_kv_batches_replayed_total", &labels);
                    seen_if(read >= told, format!("{read} of {told} batches"))
                })
                .await?;
            }
        }
        Ok(())
    }
}

async fn start_indexers(
    count: usize,
    config: &Value,
    machine: impl Fn(&str) -> Result<Option<Arc<Machine>>>,
    dir: &Path,
) -> Result<Vec<Indexer>> {
    let ports = (0..count).map(|_| IndexerPorts::claim()).collect::<Result<Vec<_>>>()?;
    let addresses: Vec<String> = ports.iter().map(IndexerPorts::grpc).collect();
    let indexers = ports.into_iter().enumerate().map(async |(number, ports)| {
        let mut config = config.clone();
        let own = ports.grpc();
        config["peers"] = addresses.iter().filter(|address| **address != own).cloned().collect();
        let name = format!("indexer-{number}");
        Indexer::start_on(machine(&name)?, &name, ports, config, dir).await
    });
    try_join_all(indexers).await
}
