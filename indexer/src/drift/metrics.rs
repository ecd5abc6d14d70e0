//! What the drift alarm shows.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Compared;

/// Values of the label `result`.
const RESULTS: [&str; 3] = ["equal", "more", "fewer"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ComparedLabels {
    pub model: String,
    pub endpoint: String,
    pub result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ModelLabels {
    pub model: String,
}

/// Metrics of [`super`].
#[derive(Clone, Debug, Default)]
pub struct DriftMetrics {
    pub compared: Family<ComparedLabels, Counter>,
    pub drift: Family<ModelLabels, Gauge>,
}

impl DriftMetrics {
    pub(super) fn count(&self, model: &str, endpoint: &str, compared: Compared) {
        let result = match compared.ours.cmp(&compared.theirs) {
            std::cmp::Ordering::Equal => "equal",
            std::cmp::Ordering::Greater => "more",
            std::cmp::Ordering::Less => "fewer",
        };
        let labels = ComparedLabels { model: model.to_owned(), endpoint: endpoint.to_owned(), result };
        self.compared.get_or_create(&labels).inc();
    }

    /// Drops what is counted for an endpoint that is gone.
    pub fn forget_endpoint(&self, model: &str, endpoint: &str) {
        for result in RESULTS {
            let labels = ComparedLabels { model: model.to_owned(), endpoint: endpoint.to_owned(), result };
            self.compared.remove(&labels);
        }
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "prompt_tokens_compared",
            "Prompts whose tokens, made here, were as many as the engine reports (equal), more, or fewer",
            self.compared.clone(),
        );
        registry.register(
            "prompt_drift",
            "1 while a model's prompts are not made as its engines make them",
            self.drift.clone(),
        );
    }
}
