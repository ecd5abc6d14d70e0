//! Counters of the model registry.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReloadLabels {
    pub result: &'static str,
}

/// Metrics of [`super`].
#[derive(Clone, Debug, Default)]
pub struct ModelMetrics {
    pub reloads: Family<ReloadLabels, Counter>,
}

impl ModelMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "config_reloads",
            "Reloads of the configuration's models (applied, refused: the old ones stay in use)",
            self.reloads.clone(),
        );
    }
}
