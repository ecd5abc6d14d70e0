//! The real indexer as a process of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::client::{Call, Client};
use crate::engine::Engine;
use crate::eventually::{Look, eventually, seen_if};
use crate::machine::Machine;
use crate::metrics::Metrics;
use crate::paths;
use crate::ports::Port;
use crate::process::Process;

/// How long it may take to drain.
const EXIT_PATIENCE: Duration = Duration::from_secs(20);

/// The ports of an indexer, known before it runs so that Envoy and its peers can be told.
#[derive(Debug)]
pub struct IndexerPorts {
    grpc: Port,
    admin: Port,
}

impl IndexerPorts {
    /// Claims them.
    pub fn claim() -> Result<Self> {
        Ok(Self { grpc: Port::claim()?, admin: Port::claim()? })
    }

    /// `ip:port` where filter and peers ask.
    pub fn grpc(&self) -> String {
        self.grpc.to_string()
    }
}

/// The entry for an engine in the indexer's configuration.
pub fn endpoint(engine: &Engine) -> Value {
    let mut entry = json!({
        "address": engine.address(),
        "ranks": engine.spec().ranks,
        "model": engine.spec().model,
    });
    if let Some((events, replay)) = engine.streams() {
        entry["events"] = Value::String(events);
        entry["replay"] = Value::String(replay);
    }
    entry
}

/// A running indexer. Restarted, it keeps its ports.
#[derive(Debug)]
pub struct Indexer {
    name: String,
    ports: IndexerPorts,
    config: Value,
    dir: PathBuf,
    process: Process,
    client: Client,
}

impl Indexer {
    /// Starts one with this configuration (less `listen`, which is added) and waits until it is ready.
    pub async fn start(name: &str, ports: IndexerPorts, config: Value, dir: &Path) -> Result<Self> {
        Self::start_on(None, name, ports, config, dir).await
    }

    /// The same on a machine of its own, where there is one.
    pub async fn start_on(
        machine: Option<Arc<Machine>>,
        name: &str,
        ports: IndexerPorts,
        config: Value,
        dir: &Path,
    ) -> Result<Self> {
        let process = launch(machine, name, &ports, &config, dir)?;
        let (name, dir) = (name.to_owned(), dir.to_owned());
        let mut indexer = Self { name, ports, config, dir, process, client: Client::default() };
        indexer.wait_until_ready().await?;
        Ok(indexer)
    }

    /// Starts it again after it was killed or ended.
    pub async fn start_again(&mut self) -> Result<()> {
        self.launch_again()?;
        self.wait_until_ready().await
    }

    /// Changes what it is started with next time.
    pub fn configure(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.config);
    }

    /// As [`Self::start_again`], and does not wait until it is ready.
    pub fn launch_again(&mut self) -> Result<()> {
        self.process = launch(self.process.machine(), &self.name, &self.ports, &self.config, &self.dir)?;
        Ok(())
    }

    /// Starts it again with its log going to this file.
    pub async fn start_again_logging_to(&mut self, log: &Path) -> Result<()> {
        let config = self.dir.join(format!("{}.yaml", self.name));
        let args = ["-c".as_ref(), "exec \"$0\" serve --config \"$1\" 2>\"$2\"".as_ref()];
        let program = paths::indexer()?;
        let args = args.into_iter().chain([program.as_os_str(), config.as_os_str(), log.as_os_str()]);
        self.process = Process::start(&self.name, Path::new("sh"), args, &self.dir)?;
        self.wait_until_ready().await
    }

    /// Waits until it says that it is ready.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        eventually("the indexer is ready", async || {
            if !self.process.is_running() {
                return Ok(Look::Never(format!("{} ended: {}", self.name, self.process.log())));
            }
            let answer = self.client.send(&self.admin_address(), Call::get("/readyz")).await?;
            seen_if(answer.status == 200, answer.text())
        })
        .await
    }

    /// `ip:port` where filter and peers ask.
    pub fn grpc_address(&self) -> String {
        self.ports.grpc.to_string()
    }

    /// `ip:port` of metrics, health and state.
    pub fn admin_address(&self) -> String {
        self.ports.admin.to_string()
    }

    /// Its own statistics.
    pub async fn metrics(&self) -> Result<Metrics> {
        Ok(Metrics::parse(&self.client.send(&self.admin_address(), Call::get("/metrics")).await?.text()))
    }

    /// Endpoints, streams, loads and the index, as it tells them.
    pub async fn state(&self) -> Result<Value> {
        self.client.send(&self.admin_address(), Call::get("/state")).await?.json()
    }

    /// Event streams that it is connected to.
    pub async fn connected_streams(&self) -> Result<usize> {
        Ok(connected_streams(&self.state().await?))
    }

    /// The process, to freeze, end or read.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Asks it to end and waits; an error where it had to be killed.
    pub fn stop(&mut self) -> Result<()> {
        ensure!(self.process.terminate(EXIT_PATIENCE)?, "{} did not end after SIGTERM", self.name);
        Ok(())
    }
}

/// Event streams that an indexer's state shows as connected.
fn connected_streams(state: &Value) -> usize {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let ranks = list(&state["endpoints"]).into_iter().flat_map(|endpoint| list(&endpoint["ranks"]));
    ranks.filter(|rank| rank["stream"]["connected"] == true).count()
}

fn launch(
    machine: Option<Arc<Machine>>,
    name: &str,
    ports: &IndexerPorts,
    config: &Value,
    dir: &Path,
) -> Result<Process> {
    let mut config = config.clone();
    config["listen"] = json!({ "grpc": ports.grpc.to_string(), "admin": ports.admin.to_string() });
    let path = dir.join(format!("{name}.yaml"));
    // JSON is YAML.
    std::fs::write(&path, serde_json::to_vec_pretty(&config)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let args = ["serve".as_ref(), "--config".as_ref(), path.as_os_str()];
    Process::start_on(machine, name, &paths::indexer()?, args, dir)
}
