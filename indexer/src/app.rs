//! The composition root: builds every part in start order, and stops them in the order of the drain.
//!
//! The only place that knows all parts. [`App::build`] loads, binds and wires, so that every address is known before
//! anything is served; [`App::run_until`] serves, drains and returns.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use parking_lot::{Mutex, RwLock};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use warmpath_kv::{Index, IndexLimits, KeyHasher};
use warmpath_proto::v1::peer_server::PeerServer;
use warmpath_proto::v1::scorer_server::ScorerServer;

use crate::admin::{Admin, EndpointCollector, StateSource};
use crate::books::{Books, IndexerId};
use crate::clock::Clock;
use crate::config::Config;
use crate::decide::metrics::DecideMetrics;
use crate::decide::{Decider, Models, Shared};
use crate::fleet::dns::DnsSource;
use crate::fleet::drive::{FleetDriver, OBSERVATIONS_MAX};
use crate::fleet::metrics::FleetMetrics;
use crate::fleet::scrape::{OwnCounts, OwnCountsOf, Scraper};
use crate::fleet::{EndpointSpec, Fleet, Observation, View, model_index};
use crate::ingest::{self, Ingest, IngestConfig};
use crate::lifecycle::{Readiness, TaskEnd, Tasks, next_signal};
use crate::peers::{Follower, PeerMetrics, PeerService, Publisher};
use crate::report::Reporter;
use crate::rpc::{CONNECTION_WINDOW, KEEPALIVE, STREAM_WINDOW, STREAMS_MAX, ScorerService};
use crate::{housekeeping, warmup};

/// The number of the configured endpoints among the sources; DNS names follow.
const STATIC_SOURCE: usize = 0;
/// Engines' hashes and our keys are per process as long as no other indexer has to understand them.
const KEY_BYTES: usize = 16;

/// A built program: bound, wired, not yet serving.
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

// === impl App ===

impl App {
    pub async fn build(config: Config) -> anyhow::Result<Self> {
        let clock = Clock::start();
        let readiness = Readiness::new();
        let mut tasks = Tasks::new();
        let mut registry = Registry::with_prefix("warmpath");

        // Listeners first: a port that is taken is the commonest mistake, and models take seconds to load.
        let grpc = TcpListener::bind(config.listen.grpc)
            .await
            .with_context(|| format!("cannot listen on listen.grpc {}", config.listen.grpc))?;
        let admin = TcpListener::bind(config.listen.admin)
            .await
            .with_context(|| format!("cannot listen on listen.admin {}", config.listen.admin))?;
        let bound = Bound { grpc: grpc.local_addr()?, admin: admin.local_addr()? };
        tracing::info!(grpc = %bound.grpc, admin = %bound.admin, "listening");

        // State, each with its one owner.
        let view = Arc::new(View::default());
        let hasher = KeyHasher::new(rand::random::<[u8; KEY_BYTES]>());
        let limits = IndexLimits { references_max: config.limits.index_blocks, ..IndexLimits::default() };
        let index = Arc::new(RwLock::new(Index::new(hasher, limits)));
        let books = Arc::new(Mutex::new(Books::new(IndexerId::random(), config.limits.reservations)));
        let ingest = Arc::new(ingest::start(IngestConfig::default(), index.clone(), clock)?);
        let model_names: Arc<[String]> = config.models.iter().map(|model| model.name.clone()).collect();

        // Metrics of every part.
        let fleet_metrics = FleetMetrics::default();
        fleet_metrics.register(&mut registry);
        let decide_metrics = DecideMetrics::new();
        decide_metrics.register(&mut registry);
        let peer_metrics = PeerMetrics::default();
        peer_metrics.register(&mut registry);
        registry.register_collector(Box::new(ingest.collector()));
        registry.register_collector(Box::new(EndpointCollector { view: view.clone(), books: books.clone() }));

        // Admin, so that the rest of the start can be watched.
        let state = StateSource {
            view: view.clone(),
            books: books.clone(),
            index: index.clone(),
            ingest: ingest.clone(),
            readiness: readiness.clone(),
            clock,
            models: model_names.clone(),
        };
        let admin_surface =
            Admin { registry: Arc::new(registry), readiness: readiness.clone(), state: Arc::new(state) };
        spawn_admin(&mut tasks, admin, admin_surface);

        // The fleet: configured endpoints are there before the first request.
        let mut driver = FleetDriver {
            fleet: Fleet::new(config.scrape.failures_to_avoid),
            view: view.clone(),
            books: books.clone(),
            ingest: ingest.clone(),
            models: model_names.clone(),
            clock,
            metrics: fleet_metrics.clone(),
            decide_metrics: decide_metrics.clone(),
        };
        driver.observe(static_endpoints(&config));
        let (observer, observations) = mpsc::channel(OBSERVATIONS_MAX);
        let stop = tasks.stop();
        tasks.spawn("fleet", driver.run(observations, stop.clone()));
        spawn_dns(&mut tasks, &config, &fleet_metrics, &observer);
        let own = own_counts(books.clone(), index.clone());
        let scraper = Scraper::new(config.scrape, clock, view.clone(), own, fleet_metrics);
        tasks.spawn("scrape", scraper.run(observer, stop.clone()));
        let housekeeping =
            housekeeping::run(books.clone(), index.clone(), clock, decide_metrics.clone(), stop.clone());
        tasks.spawn("housekeeping", housekeeping);

        // Peers.
        let publisher = Publisher::new(books.clone(), peer_metrics.clone());
        let peer = PeerServer::new(publisher.service(view.clone()));
        tasks.spawn("publish", publisher.run(stop.clone()));
        for peer in &config.peers {
            let follower = Follower {
                peer: peer.clone(),
                books: books.clone(),
                view: view.clone(),
                clock,
                metrics: peer_metrics.clone(),
            };
            tasks.spawn("follow", follower.run(stop.clone()));
        }

        // Models, the slow part, then the service.
        let loading = readiness.wait_for("models");
        let model_configs = config.models.clone();
        let models = tokio::task::spawn_blocking(move || Models::load(&model_configs)).await??;
        drop(loading);
        let shared = Shared { view: view.clone(), index, books: books.clone(), clock };
        let decider = Arc::new(Decider::new(&config, models, shared, decide_metrics.clone()));
        let reporter = Reporter { books, view: view.clone(), clock, model_names, metrics: decide_metrics };
        let scorer = ScorerServer::new(ScorerService { decider, reporter })
            .max_decoding_message_size(config.limits.max_message_bytes);
        spawn_grpc(&mut tasks, grpc, scorer, peer);

        let warmup = warmup::Warmup {
            view,
            ingest: ingest.clone(),
            deadline: Duration::from_millis(config.lifecycle.warmup_ms),
        };
        tasks.spawn("warmup", warmup.run(readiness.clone(), readiness.wait_for("fleet"), stop));
        Ok(Self { bound, tasks, readiness, drain: Duration::from_millis(config.lifecycle.drain_ms), ingest })
    }

    /// The addresses it listens on.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// Serves until the first signal, then drains; a second signal cuts the drain short.
    pub async fn run_until_signal(self) -> anyhow::Result<()> {
        let first = async {
            match next_signal().await {
                Ok(signal) => tracing::info!(signal, "draining"),
                Err(error) => tracing::error!(%error, "signals cannot be received; draining"),
            }
        };
        self.run_until(first).await
    }

    /// Serves until `end`, then drains.
    pub async fn run_until(mut self, end: impl Future<Output = ()>) -> anyhow::Result<()> {
        let mut end = pin!(end);
        let failed = tokio::select! {
            () = &mut end => None,
            task = self.tasks.next_end() => Some(task),
        };
        self.readiness.drain();
        let drained = tokio::select! {
            drained = self.tasks.drain(self.drain) => drained,
            _ = next_signal() => false,
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

fn static_endpoints(config: &Config) -> Observation {
    let endpoints = config.endpoints.fixed.iter();
    let endpoints =
        endpoints.filter_map(|endpoint| EndpointSpec::of_static(endpoint, &config.models)).collect();
    Observation::Listed { source: STATIC_SOURCE, endpoints }
}

fn own_counts(books: Arc<Mutex<Books>>, index: Arc<RwLock<Index>>) -> OwnCountsOf {
    Box::new(move |place| OwnCounts {
        sequences: books.lock().ledger().load(place).sequences,
        held_blocks: index.read().stream_stats(place).map_or(0, |stream| stream.blocks),
    })
}

fn spawn_dns(
    tasks: &mut Tasks,
    config: &Config,
    metrics: &FleetMetrics,
    observer: &mpsc::Sender<Observation>,
) {
    for (source, endpoints) in (STATIC_SOURCE + 1..).zip(&config.endpoints.dns) {
        let Some(model) = model_index(&endpoints.model, &config.models) else { continue };
        let dns = DnsSource { source, endpoints: endpoints.clone(), model, metrics: metrics.clone() };
        let stop = tasks.stop();
        tasks.spawn("dns", dns.run(observer.clone(), stop));
    }
}

fn spawn_admin(tasks: &mut Tasks, listener: TcpListener, admin: Admin) {
    let stop = tasks.stop();
    tasks.spawn("admin", async move {
        let served =
            axum::serve(listener, admin.router()).with_graceful_shutdown(stop.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!(%error, "the admin listener failed");
        }
    });
}

fn spawn_grpc(
    tasks: &mut Tasks,
    listener: TcpListener,
    scorer: ScorerServer<ScorerService>,
    peer: PeerServer<PeerService>,
) {
    let stop = tasks.stop();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_service(scorer)
        .add_service(peer);
    tasks.spawn("grpc", async move {
        if let Err(error) = server.serve_with_incoming_shutdown(incoming, stop.cancelled_owned()).await {
            tracing::error!(%error, "the gRPC listener failed");
        }
    });
}
