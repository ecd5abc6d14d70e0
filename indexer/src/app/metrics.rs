//! The metrics that parts are given.

use prometheus_client::registry::Registry;

use crate::decide::metrics::DecideMetrics;
use crate::engines::EngineMetrics;
use crate::fleet::metrics::FleetMetrics;
use crate::mirror::MirrorMetrics;
use crate::models::ModelMetrics;
use crate::peers::PeerMetrics;

/// One of each.
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
    pub(super) fn register(&self, registry: &mut Registry) {
        self.fleet.register(registry);
        self.decide.register(registry);
        self.peers.register(registry);
        self.engines.register(registry);
        self.models.register(registry);
        self.mirror.register(registry);
    }
}
