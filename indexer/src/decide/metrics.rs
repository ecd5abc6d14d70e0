//! What decisions are counted and timed by.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use warmpath_core::rank::Policy;

/// Stages are tens of microseconds when all is well and tens of milliseconds when it is not: 10 µs to 5 s.
const STAGE_BUCKETS: [f64; 18] = [
    10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3,
    500e-3, 1.0, 2.5, 5.0,
];
/// A warm prefill of a small model to a minute in a queue.
const TTFT_BUCKETS: [f64; 14] =
    [0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Values of the label `result` of predictions.
const PREDICTION_RESULTS: [&str; 4] = ["equal", "overpredicted", "underpredicted", "actual"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DecisionLabels {
    pub policy: &'static str,
    pub outcome: &'static str,
    /// Empty where the outcome is `scored`.
    pub reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StageLabels {
    pub stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TokensLabels {
    pub kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EvidenceLabels {
    pub model: String,
    pub policy: &'static str,
    pub kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ChoiceLabels {
    pub policy: &'static str,
    pub choice: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ServedLabels {
    pub endpoint: String,
    pub policy: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResultLabels {
    pub result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PredictionLabels {
    pub model: String,
    pub endpoint: String,
    pub result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PolicyLabels {
    pub policy: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabels {
    pub reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EventLabels {
    pub event: &'static str,
}

/// Metrics of [`super`].
#[derive(Clone, Debug)]
pub struct DecideMetrics {
    pub decisions: Family<DecisionLabels, Counter>,
    pub stages: Family<StageLabels, Histogram, fn() -> Histogram>,
    /// The same histograms, resolved once: the hot path touches no label map.
    pub tokenize: Histogram,
    pub keys: Histogram,
    pub lookup: Histogram,
    pub rank: Histogram,
    pub whole: Histogram,
    pub tokens: Family<TokensLabels, Counter>,
    pub prompt_tokens: Counter,
    pub reachable_tokens: Counter,
    pub selected_tokens: Counter,
    pub evidence: Family<EvidenceLabels, Counter>,
    pub choices: Family<ChoiceLabels, Counter>,
    pub served: Family<ServedLabels, Counter>,
    pub ejections: Family<ResultLabels, Counter>,
    pub predictions: Family<PredictionLabels, Counter>,
    pub prediction_tokens: Family<PredictionLabels, Counter>,
    pub ttft: Family<PolicyLabels, Histogram, fn() -> Histogram>,
    pub reports: Family<EventLabels, Counter>,
    pub undecided: Family<ReasonLabels, Counter>,
    pub recognitions: Family<ResultLabels, Counter>,
    pub unreserved: Counter,
    pub expired: Counter,
    pub invariant_violations: Counter,
}

// === impl DecideMetrics ===

impl DecideMetrics {
    pub fn new() -> Self {
        let stages: Family<StageLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(STAGE_BUCKETS));
        let stage = |stage| stages.get_or_create_owned(&StageLabels { stage });
        let tokens = Family::<TokensLabels, Counter>::default();
        let kind = |kind| tokens.get_or_create_owned(&TokensLabels { kind });
        Self {
            decisions: Family::default(),
            tokenize: stage("tokenize"),
            keys: stage("keys"),
            lookup: stage("lookup"),
            rank: stage("rank"),
            whole: stage("whole"),
            stages,
            prompt_tokens: kind("prompt"),
            reachable_tokens: kind("reachable"),
            selected_tokens: kind("selected"),
            tokens,
            evidence: Family::default(),
            choices: Family::default(),
            served: Family::default(),
            ejections: Family::default(),
            predictions: Family::default(),
            prediction_tokens: Family::default(),
            ttft: Family::new_with_constructor(|| Histogram::new(TTFT_BUCKETS)),
            reports: Family::default(),
            undecided: Family::default(),
            recognitions: Family::default(),
            unreserved: Counter::default(),
            expired: Counter::default(),
            invariant_violations: Counter::default(),
        }
    }

    /// Drops what is counted for an endpoint that is gone: addresses come and go, and metrics must not pile up.
    pub fn forget(&self, model: &str, endpoint: &str) {
        for result in PREDICTION_RESULTS {
            let labels = PredictionLabels { model: model.to_owned(), endpoint: endpoint.to_owned(), result };
            self.predictions.remove(&labels);
            self.prediction_tokens.remove(&labels);
        }
        for policy in Policy::NAMES.into_iter().chain([""]) {
            self.served.remove(&ServedLabels { endpoint: endpoint.to_owned(), policy });
        }
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "decisions",
            "Decisions by policy, outcome (scored, load_only) and reason",
            self.decisions.clone(),
        );
        registry.register_with_unit(
            "decision_stage",
            "Time that each stage of a decision took (tokenize, keys, lookup, rank, whole)",
            Unit::Seconds,
            self.stages.clone(),
        );
        registry.register(
            "decision_tokens",
            "Prompt tokens of scored decisions: all (prompt), held by the best endpoint (reachable), held by the picked one (selected)",
            self.tokens.clone(),
        );
        registry.register(
            "evidence_tokens",
            "Prompt tokens of the same requests, those whose end told cached tokens: all (prompt), held by the best endpoint (reachable), predicted on the one that served (captured), found there by its engine (delivered)",
            self.evidence.clone(),
        );
        registry.register(
            "choices",
            "Scored decisions by what was chosen: an endpoint that holds as much of the prompt as any (holder), one that holds less (spill), any where nobody holds anything (cold)",
            self.choices.clone(),
        );
        registry.register(
            "endpoint_requests",
            "Requests that an endpoint served to their end, as gateways report it, by the policy that ranked; empty: another indexer decided, or none",
            self.served.clone(),
        );
        registry.register(
            "endpoint_ejections",
            "Endpoints that failed too often and were not chosen for a while (ejected), and those that answered again (returned)",
            self.ejections.clone(),
        );
        registry.register(
            "predictions",
            "Predicted against actual cached tokens, in requests (equal, overpredicted, underpredicted)",
            self.predictions.clone(),
        );
        registry.register(
            "prediction_error_tokens",
            "Tokens by which actual and predicted cached tokens differed (overpredicted, underpredicted), and the actual ones (actual)",
            self.prediction_tokens.clone(),
        );
        registry.register_with_unit(
            "ttft",
            "Time from the decision to the first byte of the answer, as gateways report it",
            Unit::Seconds,
            self.ttft.clone(),
        );
        registry.register(
            "reports",
            "Reported events (first_byte, end, alive) and those of unknown decisions (unknown)",
            self.reports.clone(),
        );
        registry.register(
            "undecided_requests",
            "Requests that gateways sent on without a decision of an indexer, by their reason",
            self.undecided.clone(),
        );
        registry.register(
            "recognitions",
            "Prompts looked for by the engines' own hashes where blocks wait for a beginning that was not heard (found, nothing), or that could not be (no_algorithm, no_seed, no_adapter_path)",
            self.recognitions.clone(),
        );
        registry.register(
            "unreserved_decisions",
            "Decisions whose load is not counted because the ledger is full",
            self.unreserved.clone(),
        );
        registry.register(
            "expired_reservations",
            "Reservations whose lease ended before their request was reported over",
            self.expired.clone(),
        );
        registry.register(
            "ledger_invariant_violations",
            "Times that the sums of the ledger were not the recount of its entries; always 0",
            self.invariant_violations.clone(),
        );
    }
}

impl Default for DecideMetrics {
    fn default() -> Self {
        Self::new()
    }
}
