//! The composition root: builds every part in start order, and stops them in the order of the drain.
//!
//! The only place that knows all parts. [`App::build`] binds, starts, loads and tells the real addresses, with both ports
//! open from the first moment; [`App::run_until`] watches the tasks, drains and returns.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use parking_lot::{Mutex, RwLock};
use prometheus_client::registry::Registry as MetricRegistry;
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, watch};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use warmpath_kv::{Index, IndexLimits, KeyHasher};
use warmpath_proto::v1::images_server::ImagesServer;
use warmpath_proto::v1::peer_server::PeerServer;
use warmpath_proto::v1::scorer_server::ScorerServer;

use crate::admin::{Admin, EndpointCollector, StateSource};
use crate::books::{Books, IndexerId};
use crate::clock::Clock;
use crate::config::Config;
use crate::decide::metrics::DecideMetrics;
use crate::decide::{Decider, MemoCollector, PromptMemo, SAMPLE_BEATS, Shared};
use crate::drift::{DriftMetrics, DriftWatch};
use crate::engines::{Directory, EngineMetrics, Poller};
use crate::fleet::dns::DnsSource;
use crate::fleet::drive::{FleetDriver, OBSERVATIONS_MAX};
use crate::fleet::metrics::FleetMetrics;
use crate::fleet::scrape::{GuessOf, OwnCounts, OwnCountsOf, Scraper, Sleeps};
use crate::fleet::{EndpointSpec, Fleet, Observation, View, model_index};
use crate::housekeeping;
use crate::ingest::{self, Ingest, IngestConfig};
use crate::lengths::OutputLengths;
use crate::lifecycle::{Readiness, ReadyGuard, TaskEnd, Tasks, hangups, next_signal};
use crate::lookups::Lookups;
use crate::mirror::{ImageService, MirrorMetrics, Peers, RedisAccess, RedisStore, Sources};
use crate::models::{ModelMetrics, Models, Registry, ReloadOrder, Reloader, reload};
use crate::peers::{Follower, PeerMetrics, PeerService, Publisher};
use crate::receipts::Receipts;
use crate::report::Reporter;
use crate::rpc::{CONNECTION_WINDOW, KEEPALIVE, STREAM_WINDOW, STREAMS_MAX, ScorerService};
use crate::sources::SourceWatch;
use crate::start::Start;
use crate::volatile::VolatileHeads;

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

/// The state that parts share, each with its one owner.
struct Core {
    clock: Clock,
    view: Arc<View>,
    index: Arc<RwLock<Index>>,
    books: Arc<Mutex<Books>>,
    ingest: Arc<Ingest>,
    memo: Arc<PromptMemo>,
    registry: Arc<Registry>,
    drift: Arc<DriftWatch>,
    sources: Arc<SourceWatch>,
    volatile: Arc<VolatileHeads>,
    receipts: Arc<Receipts>,
    lengths: Arc<OutputLengths>,
    engines: watch::Receiver<Arc<Directory>>,
}

/// The metrics of every part.
#[derive(Default)]
struct Metrics {
    fleet: FleetMetrics,
    decide: DecideMetrics,
    peers: PeerMetrics,
    engines: EngineMetrics,
    models: ModelMetrics,
    mirror: MirrorMetrics,
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

        let metrics = Metrics::default();
        let clock = Clock::start();
        let view: Arc<View> = Arc::default();
        let (poller, engines) = Poller::new(config.scrape, clock, view.clone(), metrics.engines.clone());
        let store = config.redis_access()?.map(|access| redis_store(access, &config));
        let core = Core::new(&config, clock, view, engines)?;
        let (reloads, orders) = mpsc::channel(reload::ORDERS_MAX);
        // Admin before the rest, so that the start can be watched.
        let decider = core.decider(&config, &metrics);
        let state = core.state_source(readiness.clone());
        spawn_admin(
            &mut tasks,
            admin,
            Admin {
                registry: Arc::new(metrics.registry(&core, &config)),
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
        let peer = start_peers(&mut tasks, &config, &core, decider.lookups(), &metrics);

        let scorer = core.scorer(&config, decider.clone(), &metrics);
        spawn_grpc(&mut tasks, grpc, scorer, peer, core.images(&metrics.mirror));
        let start = core.start(&config, store, &readiness, decider, metrics.mirror.clone());
        let stop = tasks.stop();
        tasks.spawn("start", start.run(readiness.clone(), waiting.fleet, stop));

        let model_configs = config.models.clone();
        core.registry.install(tokio::task::spawn_blocking(move || Models::load(&model_configs)).await??);
        drop(waiting.models);
        spawn_reloader(&mut tasks, core.reloader(config.clone(), file, &metrics), orders, hangups);
        let drain = Duration::from_millis(config.lifecycle.drain_ms);
        Ok(Self { bound, tasks, readiness, drain, ingest: core.ingest })
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

// === impl Core ===

impl Core {
    fn new(
        config: &Config,
        clock: Clock,
        view: Arc<View>,
        engines: watch::Receiver<Arc<Directory>>,
    ) -> anyhow::Result<Self> {
        let limits = index_limits(config);
        let (index_mib, memo_mib) = (limits.bytes() >> 20, config.limits.prompt_memo_bytes >> 20);
        tracing::info!(index_mib, memo_mib, "memory that the block index and the prompt memo may take");
        // Empty, and without a stream, until it is known what there is to begin with.
        let index = Arc::new(RwLock::new(Index::new(KeyHasher::new(rand::random()), limits)));
        Ok(Self {
            clock,
            view,
            books: Arc::new(Mutex::new(Books::new(IndexerId::random(), config.limits.reservations))),
            ingest: Arc::new(ingest::start_held(IngestConfig::default(), index.clone(), clock)?),
            index,
            memo: Arc::new(PromptMemo::new(rand::random(), config.limits.prompt_memo_bytes)),
            registry: Arc::new(Registry::of_names(&config.models)),
            drift: Arc::new(DriftWatch::new(DriftMetrics::default())),
            sources: Arc::default(),
            volatile: Arc::new(VolatileHeads::new(clock)),
            receipts: Arc::new(Receipts::new(config.receipts)),
            lengths: Arc::default(),
            engines,
        })
    }

    fn state_source(&self, readiness: Readiness) -> StateSource {
        StateSource {
            view: self.view.clone(),
            books: self.books.clone(),
            index: self.index.clone(),
            ingest: self.ingest.clone(),
            readiness,
            clock: self.clock,
            registry: self.registry.clone(),
            drift: self.drift.clone(),
            volatile: self.volatile.clone(),
            engines: self.engines.clone(),
        }
    }

    /// What takes up the knowledge of others; its guards hold readiness back from now on.
    fn start(
        &self,
        config: &Config,
        store: Option<RedisStore>,
        readiness: &Readiness,
        decider: Arc<Decider>,
        metrics: MirrorMetrics,
    ) -> Start {
        let peers = Peers::new(config.peers.clone(), self.books.lock().own());
        let saving = store.clone().zip(config.mirror.as_ref());
        Start {
            sources: Sources {
                store: store.map(|store| (store, readiness.wait_for("mirror"))),
                peers: (!peers.is_empty()).then(|| (peers, readiness.wait_for("images of peers"))),
            },
            patience: Duration::from_millis(config.lifecycle.warmup_ms),
            limits: index_limits(config),
            decider,
            ingest: self.ingest.clone(),
            view: self.view.clone(),
            metrics,
            saving: saving.map(|(store, mirror)| (store, Duration::from_millis(mirror.interval_ms))),
        }
    }

    fn images(&self, metrics: &MirrorMetrics) -> ImagesServer<ImageService> {
        let own = self.books.lock().own();
        ImagesServer::new(ImageService::new(own, self.ingest.clone(), self.index.clone(), metrics.clone()))
    }

    fn decider(&self, config: &Config, metrics: &Metrics) -> Arc<Decider> {
        let shared = Shared {
            registry: self.registry.clone(),
            view: self.view.clone(),
            engines: self.engines.clone(),
            index: self.index.clone(),
            books: self.books.clone(),
            volatile: self.volatile.clone(),
            clock: self.clock,
            memo: self.memo.clone(),
            receipts: self.receipts.clone(),
            lengths: self.lengths.clone(),
        };
        Arc::new(Decider::new(config, shared, metrics.decide.clone()))
    }

    fn reporter(&self, config: &Config, metrics: &Metrics) -> Reporter {
        Reporter {
            books: self.books.clone(),
            view: self.view.clone(),
            clock: self.clock,
            registry: self.registry.clone(),
            index: self.index.clone(),
            drift: self.drift.clone(),
            sources: self.sources.clone(),
            receipts: self.receipts.clone(),
            lengths: self.lengths.clone(),
            outliers: config.outliers,
            metrics: metrics.decide.clone(),
        }
    }

    fn scorer(
        &self,
        config: &Config,
        decider: Arc<Decider>,
        metrics: &Metrics,
    ) -> ScorerServer<ScorerService> {
        let reporter = self.reporter(config, metrics);
        ScorerServer::new(ScorerService { decider, reporter })
            .max_decoding_message_size(config.limits.max_message_bytes)
    }

    fn reloader(&self, config: Config, file: Option<PathBuf>, metrics: &Metrics) -> Reloader {
        Reloader {
            file,
            config,
            registry: self.registry.clone(),
            view: self.view.clone(),
            engines: self.engines.clone(),
            drift: self.drift.clone(),
            clock: self.clock,
            metrics: metrics.models.clone(),
            said: HashMap::new(),
        }
    }
}

// === impl Metrics ===

impl Metrics {
    fn registry(&self, core: &Core, config: &Config) -> MetricRegistry {
        let mut registry = MetricRegistry::with_prefix("warmpath");
        self.fleet.register(&mut registry);
        self.decide.register(&mut registry);
        self.peers.register(&mut registry);
        self.engines.register(&mut registry);
        self.models.register(&mut registry);
        self.mirror.register(&mut registry);
        core.drift.metrics().register(&mut registry);
        core.volatile.register(&mut registry);
        core.sources.register(&mut registry);
        registry.register_collector(Box::new(core.ingest.collector()));
        let endpoints = EndpointCollector {
            view: core.view.clone(),
            books: core.books.clone(),
            clock: core.clock,
            slow_start_ms: config.policy.slow_start_ms,
            stale_ms: config.scrape.interval_ms.saturating_mul(SAMPLE_BEATS),
        };
        registry.register_collector(Box::new(endpoints));
        registry.register_collector(Box::new(MemoCollector { memo: core.memo.clone() }));
        registry
    }
}

fn index_limits(config: &Config) -> IndexLimits {
    IndexLimits { references_max: config.limits.index_blocks, ..IndexLimits::default() }
}

fn redis_store(access: RedisAccess, config: &Config) -> RedisStore {
    let (prefix, expiry_ms) =
        config.mirror.as_ref().map_or(("", 0), |mirror| (&mirror.prefix, mirror.expiry_ms));
    RedisStore::new(access, prefix, Duration::from_millis(expiry_ms))
}

async fn bind(key: &'static str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {key} {address}"))
}

/// Everything about endpoints. Configured ones are there when this returns, so before the first request. Gives the way in for
/// whoever else observes them.
fn start_fleet(
    tasks: &mut Tasks,
    config: &Config,
    core: &Core,
    metrics: &Metrics,
) -> mpsc::Sender<Observation> {
    let mut driver = FleetDriver {
        fleet: Fleet::new(config.scrape.failures_to_avoid),
        view: core.view.clone(),
        books: core.books.clone(),
        ingest: core.ingest.clone(),
        registry: core.registry.clone(),
        clock: core.clock,
        metrics: metrics.fleet.clone(),
        decide_metrics: metrics.decide.clone(),
        drift_metrics: core.drift.metrics().clone(),
    };
    driver.observe(static_endpoints(config));
    let (observer, observations) = mpsc::channel(OBSERVATIONS_MAX);
    let stop = tasks.stop();
    tasks.spawn("fleet", driver.run(observations, stop.clone()));
    spawn_dns(tasks, config, &metrics.fleet, &observer);
    let own = (own_counts(core.books.clone(), core.index.clone()), guess_of(core.index.clone()));
    let sleeps = sleeps(core.ingest.clone());
    let scraper =
        Scraper::new(config.scrape, core.clock, core.view.clone(), own, sleeps, metrics.fleet.clone());
    tasks.spawn("scrape", scraper.run(observer.clone(), stop.clone()));
    let sources = core.sources.clone();
    tasks.spawn("sources", sources.run(core.view.clone(), core.ingest.clone(), core.clock, stop.clone()));
    let (books, index, view) = (core.books.clone(), core.index.clone(), core.view.clone());
    let decide = metrics.decide.clone();
    tasks.spawn("housekeeping", housekeeping::run(books, index, view, core.clock, decide, stop));
    observer
}

/// Follows every peer, and gives the service through which they follow this one.
fn start_peers(
    tasks: &mut Tasks,
    config: &Config,
    core: &Core,
    cached: Arc<Lookups>,
    metrics: &Metrics,
) -> PeerServer<PeerService> {
    let publisher = Publisher::new(core.books.clone(), cached.clone(), metrics.peers.clone());
    let service = PeerServer::new(publisher.service(core.view.clone(), core.clock));
    let stop = tasks.stop();
    tasks.spawn("publish", publisher.run(stop.clone()));
    for peer in &config.peers {
        let follower = Follower {
            peer: peer.clone(),
            books: core.books.clone(),
            view: core.view.clone(),
            clock: core.clock,
            reporter: core.reporter(config, metrics),
            cached: cached.clone(),
            metrics: metrics.peers.clone(),
        };
        tasks.spawn("follow", follower.run(stop.clone()));
    }
    service
}

fn static_endpoints(config: &Config) -> Observation {
    let endpoints = config.endpoints.fixed.iter();
    let endpoints =
        endpoints.filter_map(|endpoint| EndpointSpec::of_static(endpoint, &config.models)).collect();
    Observation::Listed { source: STATIC_SOURCE, endpoints }
}

fn own_counts(books: Arc<Mutex<Books>>, index: Arc<RwLock<Index>>) -> OwnCountsOf {
    Box::new(move |place| {
        let load = books.lock().ledger().load(place);
        let stream = index.read().stream_stats(place);
        OwnCounts {
            sequences: load.sequences,
            waiting: load.waiting,
            held_blocks: stream.map_or(0, |stream| stream.blocks),
            evicted_blocks: stream.map_or(0, |stream| stream.evicted),
            block_tokens: stream.and_then(|stream| stream.block_size),
            is_followed: stream.is_some_and(|stream| stream.trust.is_scored()),
        }
    })
}

fn guess_of(index: Arc<RwLock<Index>>) -> GuessOf {
    Box::new(move |place, tokens| index.write().guess_block_size(place, tokens))
}

fn sleeps(ingest: Arc<Ingest>) -> Sleeps {
    Box::new(move |place| {
        if let Err(error) = ingest.asleep(place) {
            tracing::error!(stream = %place, %error, "what is held of an engine that sleeps stays");
        }
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

fn spawn_reloader(
    tasks: &mut Tasks,
    reloader: Reloader,
    orders: mpsc::Receiver<ReloadOrder>,
    hangups: Signal,
) {
    let stop = tasks.stop();
    tasks.spawn("reload", reloader.run(orders, hangups, stop));
}

fn spawn_grpc(
    tasks: &mut Tasks,
    listener: TcpListener,
    scorer: ScorerServer<ScorerService>,
    peer: PeerServer<PeerService>,
    images: ImagesServer<ImageService>,
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
        .add_service(peer)
        .add_service(images);
    tasks.spawn("grpc", async move {
        if let Err(error) = server.serve_with_incoming_shutdown(incoming, stop.cancelled_owned()).await {
            tracing::error!(%error, "the gRPC listener failed");
        }
    });
}
