//! Counters of the questions to engines.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QuestionLabels {
    pub question: &'static str,
    pub result: &'static str,
}

/// Metrics of [`super`].
#[derive(Clone, Debug, Default)]
pub struct EngineMetrics {
    pub questions: Family<QuestionLabels, Counter>,
}

impl EngineMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "engine_questions",
            "Questions to engines about their release, adapters and event sockets (version, models, kv_event_sources), by result (answered, refused, silent, unreadable)",
            self.questions.clone(),
        );
    }
}
