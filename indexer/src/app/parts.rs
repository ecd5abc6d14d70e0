//! The state that parts share, and the parts that are made of it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use prometheus_client::registry::Registry as MetricsRegistry;
use tokio::sync::watch;
use warmpath_kv::index::Reader;
use warmpath_kv::{Index, IndexLimits, KeyHasher};
use warmpath_proto::v1::images_server::ImagesServer;
use warmpath_proto::v1::scorer_server::ScorerServer;

use super::STATIC_SOURCE;
use super::metrics::Metrics;
use crate::admin::{EndpointCollector, StateSource};
use crate::books::{Books, IndexerId};
use crate::clock::Clock;
use crate::config::Config;
use crate::decide::{Decider, MemoCollector, PromptMemo, SAMPLE_BEATS, Shared};
use crate::drift::{DriftMetrics, DriftWatch};
use crate::engines::Directory;
use crate::fleet::View;
use crate::ingest::{self, Ingest, IngestConfig};
use crate::lengths::OutputLengths;
use crate::lifecycle::Readiness;
use crate::logs::LostLines;
use crate::mirror::{DatedSecret, ImageService, Keyring, MirrorMetrics, Peers, RedisStore, Sources};
use crate::models::{Registry, Reloader};
use crate::peers::Followed;
use crate::receipts::Receipts;
use crate::report::Reporter;
use crate::rpc::ScorerService;
use crate::sources::SourceWatch;
use crate::start::Start;
use crate::volatile::VolatileHeads;

/// The state that parts share, each with its one owner.
pub(super) struct Core {
    pub(super) clock: Clock,
    pub(super) view: Arc<View>,
    pub(super) index: Arc<RwLock<Index>>,
    pub(super) keyring: Keyring,
    pub(super) followed: Followed,
    pub(super) books: Arc<Mutex<Books>>,
    pub(super) ingest: Arc<Ingest>,
    pub(super) memo: Arc<PromptMemo>,
    pub(super) registry: Arc<Registry>,
    pub(super) drift: Arc<DriftWatch>,
    pub(super) sources: Arc<SourceWatch>,
    pub(super) volatile: Arc<VolatileHeads>,
    pub(super) receipts: Arc<Receipts>,
    pub(super) lengths: Arc<OutputLengths>,
    pub(super) engines: watch::Receiver<Arc<Directory>>,
}

// === impl Core ===

impl Core {
    pub(super) fn new(
        config: &Config,
        clock: Clock,
        view: Arc<View>,
        engines: watch::Receiver<Arc<Directory>>,
    ) -> anyhow::Result<Self> {
        let limits = index_limits(config);
        let (index_mib, memo_mib) = (limits.bytes() >> 20, config.limits.prompt_memo_bytes >> 20);
        tracing::info!(index_mib, memo_mib, "memory that the block index and the prompt memo may take");
        let dated = DatedSecret::draw();
        // Empty, and without a stream, until it is known what there is to begin with.
        let index = Arc::new(RwLock::new(Index::new(KeyHasher::new(dated.secret), limits)));
        Ok(Self {
            clock,
            view,
            books: Arc::new(Mutex::new(Books::new(IndexerId::random(), config.limits.reservations))),
            ingest: Arc::new(ingest::start_held(IngestConfig::default(), index.clone(), clock)?),
            index,
            keyring: Keyring::new(dated),
            followed: Followed::default(),
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

    /// All metrics that there are.
    pub(super) fn metrics_registry(&self, metrics: &Metrics, config: &Config) -> MetricsRegistry {
        let mut registry = MetricsRegistry::with_prefix("warmpath");
        metrics.register(&mut registry);
        self.drift.metrics().register(&mut registry);
        self.volatile.register(&mut registry);
        self.sources.register(&mut registry);
        registry.register_collector(Box::new(self.ingest.collector()));
        let endpoints = EndpointCollector {
            view: self.view.clone(),
            books: self.books.clone(),
            clock: self.clock,
            slow_start_ms: config.policy.slow_start_ms,
            stale_ms: config.scrape.interval_ms.saturating_mul(SAMPLE_BEATS),
        };
        registry.register_collector(Box::new(endpoints));
        registry.register_collector(Box::new(MemoCollector { memo: self.memo.clone() }));
        registry.register_collector(Box::new(LostLines));
        registry
    }

    pub(super) fn state_source(&self, readiness: Readiness) -> StateSource {
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
    pub(super) fn start(
        &self,
        config: &Config,
        store: Option<RedisStore>,
        readiness: &Readiness,
        metrics: &Metrics,
    ) -> Start {
        let peers = Peers::new(config.peers.clone(), self.books.lock().own());
        let saving = store.clone().zip(config.mirror.as_ref());
        Start {
            sources: Sources {
                store: store.map(|store| (store, readiness.wait_for("mirror"))),
                peers: (!peers.is_empty()).then(|| (peers.clone(), readiness.wait_for("images of peers"))),
            },
            patience: Duration::from_millis(config.lifecycle.warmup_ms),
            limits: index_limits(config),
            keyring: self.keyring.clone(),
            cached: self.reader(),
            ingest: self.ingest.clone(),
            view: self.view.clone(),
            listings: STATIC_SOURCE + 1 + config.endpoints.dns.len(),
            metrics: metrics.mirror.clone(),
            peers,
            followed: self.followed.clone(),
            peer_metrics: metrics.peers.clone(),
            saving: saving.map(|(store, mirror)| (store, Duration::from_millis(mirror.interval_ms))),
        }
    }

    pub(super) fn images(&self, metrics: &MirrorMetrics) -> ImagesServer<ImageService> {
        let own = self.books.lock().own();
        let (ingest, index, keyring) = (self.ingest.clone(), self.index.clone(), self.keyring.clone());
        ImagesServer::new(ImageService::new(own, ingest, index, keyring, metrics.clone()))
    }

    /// Sees the index in use, whenever it is replaced.
    pub(super) fn reader(&self) -> Reader {
        self.index.read().reader()
    }

    pub(super) fn decider(&self, config: &Config, metrics: &Metrics) -> Arc<Decider> {
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

    pub(super) fn reporter(&self, config: &Config, metrics: &Metrics) -> Reporter {
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

    pub(super) fn scorer(
        &self,
        config: &Config,
        decider: Arc<Decider>,
        metrics: &Metrics,
    ) -> ScorerServer<ScorerService> {
        let reporter = self.reporter(config, metrics);
        ScorerServer::new(ScorerService { decider, reporter })
            .max_decoding_message_size(config.limits.max_message_bytes)
    }

    pub(super) fn reloader(&self, config: Config, file: Option<PathBuf>, metrics: &Metrics) -> Reloader {
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

fn index_limits(config: &Config) -> IndexLimits {
    IndexLimits { references_max: config.limits.index_blocks, ..IndexLimits::default() }
}
