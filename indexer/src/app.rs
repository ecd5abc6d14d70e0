//! The composition root: builds every part in start order, and stops them in the order of the drain.
//!
//! The only place that knows all parts. [`App::build`] binds, starts, loads and tells the real addresses, with both ports
//! open from the first moment; [`App::run_until`] watches the tasks, drains and returns.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

mod metrics;
mod parts;
mod tasks;

use crate::admin::Admin;
use crate::clock::Clock;
use crate::config::Config;
use crate::engines::Poller;
use crate::fleet::View;
use crate::ingest::Ingest;
use crate::lifecycle::{EndSignals, Readiness, ReadyGuard, TaskEnd, Tasks, hangups};
use crate::mirror::{RedisAccess, RedisStore};
use crate::models::{Models, reload};
use metrics::Metrics;
use parts::Core;
use tasks::{spawn_admin, spawn_grpc, spawn_reloader, start_fleet, start_peers};

/// The number of the configured endpoints among the sources; DNS names follow.
const STATIC_SOURCE: usize = 0;

/// A started program.
pub struct App {
    bound: Bound,
    tasks: Tasks,
    readiness: Readiness,
    drain: Duration,
    // Last, so that the event thread outlives all who read its index.
    ingest: Arc<Ingest>,
}

/// The real addresses, where port 0 was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub grpc: SocketAddr,
    pub admin: SocketAddr,
}

/// What readiness waits for from the first moment on.
struct Waiting {
    models: ReadyGuard,
    fleet: ReadyGuard,
}

// === impl App ===

impl App {
    /// Loads the models, binds the listeners and starts everything behind them. `file` is where the configuration came
    /// from, and where a reload reads it again.
    pub async fn build(config: Config, file: Option<PathBuf>) -> anyhow::Result<Self> {
        // First, because a hangup ends the process until somebody listens to it.
        let hangups = hangups()?;
        let readiness = Readiness::new();
        let waiting = Waiting { models: readiness.wait_for("models"), fleet: readiness.wait_for("fleet") };
        let mut tasks = Tasks::new();

        // Listeners first: a port that is taken is the commonest mistake, and models take seconds to load.
        let grpc = bind("listen.grpc", config.listen.grpc).await?;
        let admin = bind("listen.admin", config.listen.admin).await?;
        let bound = Bound { grpc: grpc.local_addr()?, admin: admin.local_addr()? };
        tracing::info!(grpc = %bound.grpc, admin = %bound.admin, "listening");
        if config.endpoints.fixed.is_empty() && config.endpoints.dns.is_empty() {
            tracing::warn!("no endpoints are configured: every request is left to the proxy's own policy");
        }

        let metrics = Metrics::default();
        let clock = Clock::start();
        let view: Arc<View> = Arc::default();
        let (poller, engines) = Poller::new(config.scrape, clock, view.clone(), metrics.engines.clone());
        let access = config.redis_access().map_err(|error| error.in_file(file.as_deref()))?;
        let store = access.map(|access| redis_store(access, &config));
        let core = Core::new(&config, clock, view, engines)?;
        let (reloads, orders) = mpsc::channel(reload::ORDERS_MAX);
        // Admin before the rest, so that the start can be watched.
        let decider = core.decider(&config, &metrics);
        let state = core.state_source(readiness.clone());
        spawn_admin(
            &mut tasks,
            admin,
            Admin {
                registry: Arc::new(core.metrics_registry(&metrics, &config)),
                readiness: readiness.clone(),
                state: Arc::new(state),
                reloads,
                decider: decider.clone(),
                receipts: core.receipts.clone(),
                sources: core.sources.clone(),
                max_body_bytes: config.limits.max_message_bytes,
            },
        );
        let observer = start_fleet(&mut tasks, &config, &core, &metrics);
        let stop = tasks.stop();
        tasks.spawn("engines", poller.run(observer, stop));
        let peer = start_peers(&mut tasks, &config, &core, &metrics);

        let scorer = core.scorer(&config, decider, &metrics);
        spawn_grpc(&mut tasks, grpc, scorer, peer, core.images(&metrics.mirror));
        let start = core.start(&config, store, &readiness, &metrics);
        let stop = tasks.stop();
        tasks.spawn("start", start.run(readiness.clone(), waiting.fleet, stop));

        let model_configs = config.models.clone();
        core.registry.install(tokio::task::spawn_blocking(move || Models::load(&model_configs)).await??);
        waiting.models.end("loaded");
        spawn_reloader(&mut tasks, core.reloader(config.clone(), file, &metrics), orders, hangups);
        let drain = Duration::from_millis(config.lifecycle.drain_ms);
        Ok(Self { bound, tasks, readiness, drain, ingest: core.ingest })
    }

    /// The addresses it listens on.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// Serves until the first signal, then drains; a second signal cuts the drain short.
    pub async fn run_until_signal(mut self, mut signals: EndSignals) -> anyhow::Result<()> {
        let failed = tokio::select! {
            signal = signals.next() => {
                tracing::info!(signal, "draining");
                None
            }
            task = self.tasks.next_end() => Some(task),
        };
        self.end(failed, signals.next()).await
    }

    /// Serves until `end`, then drains.
    pub async fn run_until(mut self, end: impl Future<Output = ()>) -> anyhow::Result<()> {
        let failed = tokio::select! {
            () = end => None,
            task = self.tasks.next_end() => Some(task),
        };
        self.end(failed, std::future::pending::<()>()).await
    }

    /// `failed`: the task whose end is that of the program.
    async fn end<T>(
        mut self,
        failed: Option<Option<TaskEnd>>,
        cut_short: impl Future<Output = T>,
    ) -> anyhow::Result<()> {
        self.readiness.drain();
        let drained = tokio::select! {
            drained = self.tasks.drain(self.drain) => drained,
            _ = cut_short => false,
        };
        if !drained {
            tracing::warn!("the drain was cut short; some requests had no answer");
        }
        tracing::info!(streams = self.ingest.status().len(), "stopped");
        match failed {
            None => Ok(()),
            Some(Some(TaskEnd::Finished(task))) => bail!("the task {task} ended early"),
            Some(Some(TaskEnd::Panicked(error))) => bail!("a task panicked: {error}"),
            Some(None) => bail!("no task is running"),
        }
    }
}

async fn bind(key: &'static str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {key} {address}"))
}

fn redis_store(access: RedisAccess, config: &Config) -> RedisStore {
    let (prefix, expiry_ms) =
        config.mirror.as_ref().map_or(("", 0), |mirror| (&mirror.prefix, mirror.expiry_ms));
    RedisStore::new(access, prefix, Duration::from_millis(expiry_ms))
}
