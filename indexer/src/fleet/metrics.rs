//! Counters of the fleet's sources.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByResult {
    pub result: &'static str,
}

/// Metrics of [`super`].
#[derive(Clone, Debug, Default)]
pub struct FleetMetrics {
    pub scrapes: Family<ByResult, Counter>,
    pub lookups: Family<ByResult, Counter>,
    pub changes: Family<ByResult, Counter>,
    pub absent: Gauge,
}

impl FleetMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "engine_scrapes",
            "Attempts to read an engine's metrics (answered, refused, silent)",
            self.scrapes.clone(),
        );
        registry.register(
            "dns_lookups",
            "Lookups of DNS names of endpoints (ok, failed, or cut where there were more addresses than are used)",
            self.lookups.clone(),
        );
        registry.register(
            "endpoint_changes",
            "Endpoints that came, went, became avoided or usable again (added, removed, avoided, usable)",
            self.changes.clone(),
        );
        registry.register(
            "endpoints_absent",
            "Endpoints that the last answer to the lookup of their name left out, and that are kept for now",
            self.absent.clone(),
        );
    }
}
