//! Real Envoy with the bootstrap that is shipped: only ports and paths differ, so what is tested is what users run.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::client::{Call, Client};
use crate::eventually::{Look, eventually, seen_if};
use crate::machine::Machine;
use crate::metrics::Metrics;
use crate::paths;
use crate::ports::Port;
use crate::process::Process;

mod reload;

use reload::ListenerFile;
pub use reload::set_filter_among;

const HTTP_FILTERS: &str =
    "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";

/// Envoy's own default.
const DRAIN_S: u32 = 600;
const EXIT_PATIENCE: Duration = Duration::from_secs(10);

/// `envoy/envoy.yaml`, parsed, to be pointed elsewhere.
#[derive(Clone, Debug)]
pub struct Bootstrap(Value);

impl Bootstrap {
    /// The one that is shipped.
    pub fn shipped() -> Result<Self> {
        let path = paths::root().join("envoy/envoy.yaml");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self(serde_yaml_ng::from_str(&text).with_context(|| format!("{} is no YAML", path.display()))?))
    }

    /// A place in it, by JSON pointer.
    pub fn at(&mut self, pointer: &str) -> Result<&mut Value> {
        self.0.pointer_mut(pointer).with_context(|| format!("envoy.yaml has no {pointer}"))
    }

    /// The cluster of this name.
    pub fn cluster(&mut self, name: &str) -> Result<&mut Value> {
        named(self.at("/static_resources/clusters")?, name)
    }

    /// What the listener does with connections.
    pub fn connection_manager(&mut self) -> Result<&mut Value> {
        self.at("/static_resources/listeners/0/filter_chains/0/filters/0/typed_config")
    }

    /// The HTTP filters of the listener, in their order.
    pub fn http_filters(&mut self) -> Result<&mut Vec<Value>> {
        self.at(HTTP_FILTERS)?.as_array_mut().context("http_filters is no list")
    }

    /// The plugin's part: `allow_on_headers_stop_iteration`, `vm_config` and so on.
    pub fn plugin(&mut self) -> Result<&mut Value> {
        let filter = named(self.at(HTTP_FILTERS)?, "warmpath")?;
        filter.pointer_mut("/typed_config/config").context("the filter has no configuration")
    }

    /// The filter's own configuration, to read or replace.
    pub fn filter(&mut self) -> Result<Value> {
        let text = self.plugin()?["configuration"]["value"].as_str().context("no plugin configuration")?;
        serde_json::from_str(text).context("the plugin configuration is no JSON")
    }

    /// Replaces the filter's own configuration.
    pub fn set_filter(&mut self, config: &Value) -> Result<()> {
        self.plugin()?["configuration"]["value"] = Value::String(config.to_string());
        Ok(())
    }

    /// Replaces the module that is run as the filter.
    pub fn set_module(&mut self, wasm: &Path) -> Result<()> {
        let filename = wasm.to_string_lossy().into_owned();
        self.plugin()?["vm_config"]["code"]["local"]["filename"] = Value::String(filename);
        Ok(())
    }

    /// Takes the filter out: Envoy alone, to compare with.
    pub fn remove_filter(&mut self) -> Result<()> {
        let filters = self.at(HTTP_FILTERS)?.as_array_mut().context("envoy.yaml has no list of filters")?;
        filters.retain(|filter| filter["name"] != "warmpath");
        Ok(())
    }

    /// Replaces the hosts of a cluster; none makes it an empty one.
    pub fn set_hosts(&mut self, cluster: &str, hosts: &[String]) -> Result<()> {
        let endpoints =
            hosts.iter().map(|host| Ok(json!({ "endpoint": { "address": socket_address(host)? } })));
        let endpoints = endpoints.collect::<Result<Vec<Value>>>()?;
        *self.cluster(cluster)?.pointer_mut("/load_assignment/endpoints").context("no load_assignment")? =
            json!([{ "lb_endpoints": endpoints }]);
        Ok(())
    }

    /// Asks Envoy itself whether it would run with this. Compiles and configures the filter too.
    pub fn validate(&self, dir: &Path) -> Result<std::process::Output> {
        let config = self.write(dir)?;
        let mut command = std::process::Command::new(paths::envoy()?);
        command
            .current_dir(paths::root())
            .args(["--mode", "validate", "--disable-hot-restart", "-c"])
            .arg(config);
        Ok(command.output()?)
    }

    /// JSON is YAML, and needs no care for quoting.
    fn write(&self, dir: &Path) -> Result<PathBuf> {
        let path = dir.join("envoy.json");
        std::fs::write(&path, serde_json::to_vec_pretty(&self.0)?)?;
        Ok(path)
    }
}

fn named<'a>(list: &'a mut Value, name: &str) -> Result<&'a mut Value> {
    let found = list.as_array_mut().and_then(|items| items.iter_mut().find(|item| item["name"] == name));
    found.with_context(|| format!("envoy.yaml has no `{name}` where it is expected"))
}

fn socket_address(host: &str) -> Result<Value> {
    let host: SocketAddr = host.parse().with_context(|| format!("`{host}` is no ip:port"))?;
    Ok(json!({ "socket_address": { "address": host.ip().to_string(), "port_value": host.port() } }))
}

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    listener: Port,
    admin: Port,
    client: Client,
    /// Where its listener may be replaced.
    listener_file: Option<ListenerFile>,
}

impl Envoy {
    /// Starts it with this bootstrap and this many workers on ports of its own, and waits until it takes requests. On a machine
    /// of its own, where there is one. With `drain_s` [`Envoy::change_filters`] can replace its listener, and what the one
    /// before has under way may take so many seconds.
    pub async fn start(
        machine: Option<Arc<Machine>>,
        drain_s: Option<u32>,
        mut bootstrap: Bootstrap,
        workers: usize,
        dir: &Path,
    ) -> Result<Self> {
        let (listener, admin) = (Port::claim()?, Port::claim()?);
        *bootstrap.at("/static_resources/listeners/0/address")? = socket_address(&listener.to_string())?;
        *bootstrap.at("/admin/address")? = socket_address(&admin.to_string())?;
        let listener_file = drain_s.map(|_| ListenerFile::split(&mut bootstrap, dir)).transpose()?;
        let config = bootstrap.write(dir)?;
        let config = config.to_string_lossy();
        // Hot restart would tie Envoy's life to that of the thread that started it, and clash between cases.
        let (workers, drain_s) = (workers.to_string(), drain_s.unwrap_or(DRAIN_S).to_string());
        let args = ["-c", &config, "--disable-hot-restart", "--concurrency", &workers];
        let args = args.into_iter().chain(["--drain-time-s", &drain_s]);
        let args = args.into_iter().chain(["--log-level", "warning", "--component-log-level", "wasm:info"]);
        let process = Process::start_on(machine, "envoy", &paths::envoy()?, args, dir)?;
        let mut envoy = Self { process, listener, admin, client: Client::default(), listener_file };
        envoy.wait_until_ready().await?;
        Ok(envoy)
    }

    /// Replaces the listener by one with other HTTP filters. Envoy takes it when it has read it; requests under way
    /// finish with the old one.
    pub fn change_filters(&mut self, change: impl FnOnce(&mut Value) -> Result<()>) -> Result<()> {
        self.listener_file.as_mut().context("this Envoy's listener is fixed")?.change(change)
    }

    /// How many listeners it has taken, and how many it has refused.
    pub async fn listener_updates(&self) -> Result<(f64, f64)> {
        let metrics = self.metrics().await?;
        let count = |what: &str| metrics.sum(&format!("envoy_listener_manager_lds_update_{what}"), &[]);
        Ok((count("success"), count("rejected")))
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        eventually("Envoy is live", async || {
            if !self.process.is_running() {
                return Ok(Look::Never("Envoy ended".to_owned()));
            }
            let answer = self.client.send(&self.admin.to_string(), Call::get("/ready")).await?;
            seen_if(answer.status == 200, answer.text())
        })
        .await
    }

    /// Where requests go, `ip:port`.
    pub fn address(&self) -> String {
        self.listener.to_string()
    }

    /// The admin port, `ip:port`.
    pub fn admin_address(&self) -> String {
        self.admin.to_string()
    }

    /// All its statistics.
    pub async fn metrics(&self) -> Result<Metrics> {
        let answer = self.client.send(&self.admin_address(), Call::get("/stats/prometheus")).await?;
        Ok(Metrics::parse(&answer.text()))
    }

    /// Sets the clock of its machine so many seconds ahead of the right time, or behind it.
    pub fn set_clock(&self, ahead_s: i64) -> Result<()> {
        self.process.set_clock(ahead_s)
    }

    /// The process, to freeze, end or read.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Lets it end by itself.
    pub fn stop(&mut self) -> Result<()> {
        self.process.terminate(EXIT_PATIENCE)?;
        Ok(())
    }
}
