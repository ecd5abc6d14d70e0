//! A forecast held against what its engine says.

use warmpath_kv::{StreamId, Trust};

use super::Reporter;
use crate::decide::metrics::{EvidenceLabels, PredictionLabels};
use crate::drift::{Compared, Signal};
use crate::fleet::Snapshot;
use crate::ledger::{Entry, Forecast};
use crate::reported::Usage;

impl Reporter {
    /// Holds what we made of the prompt, and the forecast for the place that served it, against what its engine says.
    pub(super) fn compare(&self, entry: &Entry, usage: Usage, snapshot: &Snapshot) {
        let place = entry.reservation.place;
        let Some(forecast) = &entry.forecast else { return };
        let Some((endpoint, _)) = snapshot.by_place(place) else { return };
        let loaded = forecast.model;
        let model = loaded.map(|model| self.registry.name(model.index).to_string()).unwrap_or_default();
        let drift = |signal, ours, theirs| {
            if let Some(loaded) = loaded {
                self.drift.compare(loaded, &model, &endpoint.name, signal, Compared { ours, theirs });
            }
        };
        if let (Some(ours), Some(theirs)) = (forecast.prompt_tokens, usage.prompt_tokens) {
            drift(Signal::Size, ours, theirs);
        }
        let (Some(predicted), Some(actual)) = (forecast.predicted(place), usage.cached_tokens) else {
            return;
        };
        if forecast.size_tokens > 0 {
            let size = forecast.size_tokens;
            let kinds = [
                ("prompt", size),
                ("reachable", forecast.reachable_tokens.max(predicted)),
                ("captured", predicted),
                ("delivered", actual.min(size)),
            ];
            for (kind, tokens) in kinds {
                let labels = EvidenceLabels { model: model.clone(), policy: forecast.policy, kind };
                self.metrics.evidence.get_or_create(&labels).inc_by(tokens.into());
            }
        }
        if forecast.prompt_tokens.is_some() && self.is_known_whole(place) {
            drift(Signal::Cache, predicted, actual);
        }
        let labels =
            |result| PredictionLabels { model: model.clone(), endpoint: endpoint.name.to_string(), result };
        let (result, difference) = match actual.cmp(&predicted) {
            std::cmp::Ordering::Equal => ("equal", 0),
            std::cmp::Ordering::Less => ("overpredicted", predicted - actual),
            std::cmp::Ordering::Greater => ("underpredicted", actual - predicted),
        };
        self.metrics.predictions.get_or_create(&labels(result)).inc();
        self.metrics.prediction_tokens.get_or_create(&labels("actual")).inc_by(actual.into());
        if difference > 0 {
            self.metrics.prediction_tokens.get_or_create(&labels(result)).inc_by(difference.into());
            tracing::debug!(endpoint = %endpoint.name, predicted, actual, "cached tokens are not as predicted");
        }
    }

    /// All that its engine can find of a prompt is known: its events are all here, and it has no other medium to load
    /// blocks from, which would count as cached too. Where somebody writes the index, or waits to, this is not waited
    /// for: one comparison less.
    fn is_known_whole(&self, place: StreamId) -> bool {
        let stats = self.index.try_read().and_then(|index| index.stream_stats(place));
        stats.is_some_and(|stream| stream.trust == Trust::Live && !stream.has_other_media)
    }
}

// === impl Forecast ===

impl Forecast {
    pub(super) fn predicted(&self, place: StreamId) -> Option<u32> {
        self.cached_tokens.iter().find(|(candidate, _)| *candidate == place).map(|(_, tokens)| *tokens)
    }
}
