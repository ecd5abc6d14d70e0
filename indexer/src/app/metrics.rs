//! The metrics of every part, in one registry.

use prometheus_client::registry::Registry;

use super::parts::Core;
use crate::admin::EndpointCollector;
use crate::config::Config;
use crate::decide::metrics::DecideMetrics;
use crate::decide::{MemoCollector, SAMPLE_BEATS};
use crate::engines::EngineMetrics;
use crate::fleet::metrics::FleetMetrics;
use crate::mirror::MirrorMetrics;
use crate::models::ModelMetrics;
use crate::peers::PeerMetrics;

/// The metrics of every part.
#[derive(Default)]
pub(super) struct Metrics {
    pub(super) fleet: FleetMetrics,
    pub(super) decide: DecideMetrics,
    pub(super) peers: PeerMetrics,
    pub(super) engines: EngineMetrics,
    pub(super) models: ModelMetrics,
    pub(super) mirror: MirrorMetrics,
}

// === impl Metrics ===

impl Metrics {
    pub(super) fn registry(&self, core: &Core, config: &Config) -> Registry {
        let mut registry = Registry::with_prefix("warmpath");
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
