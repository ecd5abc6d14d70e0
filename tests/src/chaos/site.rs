//! Everything that a schedule needs, with a proxy on every way that it may break.
//!
//! ```text
//! client ─▶ Envoy + filter ─▶ proxy ─▶ indexers ─▶ proxy ─▶ Redis
//!                 │                       │ └─────▶ proxy ─▶ the other indexers
//!                 ▼                       ▼
//!              engines ◀──────────────── proxy (events, replays)
//! ```
//!
//! Figures of engines are read past the proxies: an endpoint's address is its name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::MODEL;
use super::fault::{Link, Victim};
use super::toxic::{Proxy, Toxic};
use crate::client::Client;
use crate::engine::{Engine, EngineSpec};
use crate::envoy::{Bootstrap, Envoy, set_filter_among};
use crate::eventually::{eventually, seen_if};
use crate::indexer::{self, Indexer, IndexerPorts};
use crate::machine::Machine;
use crate::paths;
use crate::ports::Port;
use crate::process::Process;
use crate::redis::{Keeps, Redis};

/// Blocks of an engine's cache: fewer than the load's prompts have, so that blocks come and go.
const BLOCKS: u32 = 256;
/// How much faster than real ones engines are: answers take some tenths of a second.
const SPEEDUP: f64 = 5.0;
/// Batches that the engines' replay keeps: some seconds' worth, so that a mirror is needed after longer.
const KEPT: usize = 2000;
/// How long requests without a sign of life count: short, so that the end of a run shows whether they go.
const RESERVATION_MS: u64 = 8000;
const WORKERS: usize = 2;
/// What a replaced listener may have under way, in seconds: longer than any request here takes.
const DRAIN_S: u32 = 60;

/// How many of what.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Indexers.
    pub indexers: usize,
    /// Engines.
    pub engines: usize,
    /// How long the filter waits for an indexer; None: as it is shipped.
    pub timeout_ms: Option<u64>,
    /// What Redis keeps on disk, where clocks are to jump and disks to be full: then each process has a machine of its own.
    pub machines: Option<Keeps>,
}

/// What was started. Everything ends with it.
#[derive(Debug)]
pub struct Site {
    /// Emulated engines.
    pub engines: Vec<Engine>,
    /// Real indexers, peers of each other, with a mirror.
    pub indexers: Vec<Indexer>,
    /// Real Redis.
    pub redis: Redis,
    /// Real Envoy with the shipped bootstrap, and the shipped deadline.
    pub envoy: Envoy,
    /// For requests to any of them.
    pub client: Client,
    links: BTreeMap<Link, Vec<Proxy>>,
    filter: Value,
    reloads: u64,
    dir: PathBuf,
}

impl Site {
    /// Starts everything and waits until it works. `dir` takes logs and configurations, and must be there.
    pub async fn start(size: Size, dir: &Path) -> Result<Self> {
        let redis = match size.machines {
            Some(keeps) => Redis::start_on_machine(keeps, Port::claim()?, dir).await?,
            None => Redis::start(Port::claim()?, dir).await?,
        };
        let machine = |name: &str| size.machines.map(|_| Machine::new(name, dir)).transpose();
        let engine = EngineSpec { own_machine: size.machines.is_some(), ..spec() };
        let engines =
            (0..size.engines).map(async |n| Engine::start(&format!("engine-{n}"), engine.clone(), dir).await);
        let engines = try_join_all(engines).await?;

        let ports = (0..size.indexers).map(|_| IndexerPorts::claim()).collect::<Result<Vec<_>>>()?;
        let mut links = BTreeMap::new();
        let mut configs = Vec::new();
        for (number, own) in ports.iter().enumerate() {
            links.insert(Link::Asking { indexer: number }, vec![Proxy::start(&own.grpc())?]);
            let mut peers = Vec::new();
            for (to, other) in ports.iter().enumerate().filter(|(to, _)| *to != number) {
                let proxy = Proxy::start(&other.grpc())?;
                peers.push(proxy.address());
                links.insert(Link::Peer { from: number, to }, vec![proxy]);
            }
            let mirror = Proxy::start(&redis.address())?;
            let mut endpoints = Vec::new();
            for (engine, running) in engines.iter().enumerate() {
                let (endpoint, proxies) = endpoint(running)?;
                endpoints.push(endpoint);
                links.insert(Link::Events { indexer: number, engine }, proxies);
            }
            configs.push(json!({
                "models": [{ "name": MODEL }],
                "endpoints": { "static": endpoints },
                "peers": peers,
                "scrape": { "interval_ms": 200 },
                "leases": { "reservation_ms": RESERVATION_MS },
                "mirror": { "redis": mirror.address(), "interval_ms": 500, "timeout_ms": 300 },
                "lifecycle": { "warmup_ms": 3000, "drain_ms": 3000 },
            }));
            links.insert(Link::Mirror { indexer: number }, vec![mirror]);
        }
        let indexers = ports.into_iter().zip(configs).enumerate();
        let indexers = indexers.map(async |(number, (ports, config))| {
            let name = format!("indexer-{number}");
            Indexer::start_on(machine(&name)?, &name, ports, config, dir).await
        });
        let indexers = try_join_all(indexers).await?;

        let hosts: Vec<String> = engines.iter().map(Engine::address).collect();
        let asked = links.iter().filter(|(link, _)| matches!(link, Link::Asking { .. }));
        let asked: Vec<String> = asked.flat_map(|(_, proxies)| proxies.iter().map(Proxy::address)).collect();
        let mut bootstrap = Bootstrap::shipped()?;
        bootstrap.set_module(&paths::filter_wasm()?)?;
        bootstrap.set_hosts("llm", &hosts)?;
        bootstrap.set_hosts("indexer", &asked)?;
        let mut filter = bootstrap.filter()?;
        filter["response_header"] = Value::Bool(true);
        if let Some(timeout_ms) = size.timeout_ms {
            filter["indexer"]["timeout_ms"] = timeout_ms.into();
        }
        bootstrap.set_filter(&filter)?;
        show_added_latency(bootstrap.at("")?);
        let envoy = Envoy::start(machine("envoy")?, Some(DRAIN_S), bootstrap, WORKERS, dir).await?;
        let (client, dir) = (Client::default(), dir.to_owned());
        let site = Self { engines, indexers, redis, envoy, client, links, filter, reloads: 0, dir };
        site.wait_for_streams().await?;
        Ok(site)
    }

    /// Waits until every indexer is connected to every engine.
    pub async fn wait_for_streams(&self) -> Result<()> {
        for indexer in &self.indexers {
            eventually("the indexer is connected to every engine", async || {
                let connected = indexer.connected_streams().await?;
                seen_if(connected == self.engines.len(), format!("{connected} streams"))
            })
            .await?;
        }
        Ok(())
    }

    /// Lets this befall a way; none: nothing any more.
    pub fn set(&self, link: Link, toxic: Option<Toxic>) {
        for proxy in self.links.get(&link).into_iter().flatten() {
            proxy.set(toxic);
        }
    }

    /// The process of a victim that is one.
    pub fn process(&mut self, victim: Victim) -> Result<&mut Process> {
        Ok(match victim {
            Victim::Indexer(number) => self.indexers[number].process(),
            Victim::Engine(number) => self.engines[number].process(),
            Victim::Redis => self.redis.process(),
            Victim::Envoy => self.envoy.process(),
            Victim::Link(link) => bail!("{link:?} is no process"),
        })
    }

    /// Sets all clocks right.
    pub fn set_clocks_right(&mut self) -> Result<()> {
        let engines = self.engines.iter_mut().map(Engine::process);
        let indexers = self.indexers.iter_mut().map(Indexer::process);
        let others = [self.redis.process(), self.envoy.process()];
        engines.chain(indexers).chain(others).try_for_each(|process| process.set_clock(0))
    }

    /// Replaces the listener by one whose filter is configured otherwise, and so begins anew.
    pub fn reload(&mut self) -> Result<()> {
        self.reloads += 1;
        self.filter["report_interval_ms"] = json!(40 + self.reloads % 20);
        let filter = self.filter.clone();
        self.envoy.change_filters(|filters| set_filter_among(filters, &filter))
    }

    /// Where logs and configurations are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Has Envoy merge histograms often, and count the filter's added latency up to what is asked of it.
fn show_added_latency(bootstrap: &mut Value) {
    bootstrap["stats_flush_interval"] = "1s".into();
    bootstrap["stats_config"] = json!({ "histogram_bucket_settings": [{
        "match": { "contains": "added_latency_us" },
        "buckets": [200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 60_000, 100_000, 1_000_000],
    }] });
}

fn spec() -> EngineSpec {
    EngineSpec {
        blocks: BLOCKS,
        speedup: SPEEDUP,
        flags: vec![format!("--buffer-steps={KEPT}")],
        ..EngineSpec::new(MODEL, None)
    }
}

/// An engine's entry in an indexer's configuration, with proxies before its events and its replays.
fn endpoint(engine: &Engine) -> Result<(Value, Vec<Proxy>)> {
    let mut entry = indexer::endpoint(engine);
    let mut proxies = Vec::new();
    for key in ["events", "replay"] {
        let to = entry[key].as_str().and_then(|address| address.strip_prefix("tcp://"));
        let proxy = Proxy::start(to.context("an engine without streams")?)?;
        entry[key] = format!("tcp://{}", proxy.address()).into();
        proxies.push(proxy);
    }
    Ok((entry, proxies))
}
