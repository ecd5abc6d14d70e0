//! What became of earlier decisions: reports of gateways → ledger, forecasts held against facts, where responses are
//! kept, time to first byte.
//!
//! In: checked [`Report`]s. Out: counters, and the ledger's events. A report that cannot be matched is counted and
//! changes nothing.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use warmpath_core::outcome;
use warmpath_kv::{Index, StreamId, Trust};

use crate::answers::ResponseKey;
use crate::books::Books;
use crate::clock::Clock;
use crate::config::Outliers;
use crate::decide::metrics::{
    DecideMetrics, EventLabels, EvidenceLabels, PolicyLabels, PredictionLabels, ReasonLabels, ResultLabels,
    ServedLabels,
};
use crate::drift::{Compared, DriftWatch, Signal};
use crate::fleet::{Endpoint, Heard, Snapshot, Standing, View};
use crate::ledger::{DecisionId, Entry, Event, Forecast, Phase};
use crate::lengths::OutputLengths;
use crate::models::Registry;
use crate::receipts::{Fate, Receipts, millis};
use crate::sources::SourceWatch;

/// One reported event, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub decision: Decided,
    /// Since the decision.
    pub elapsed: Duration,
    pub what: Reported,
}

/// Who decided a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    Indexer(DecisionId),
    /// Nobody of us, and why.
    Elsewhere(outcome::Reason),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reported {
    FirstByte {
        /// The endpoint that answers, `ip:port`.
        endpoint: String,
        http_status: u32,
    },
    Alive,
    End {
        /// The endpoint that served it; empty: none was reached.
        endpoint: String,
        /// 0: no answer came.
        http_status: u32,
        usage: Usage,
        /// The response that it made and keeps.
        response: Option<ResponseKey>,
        /// The endpoint, or the way to it, broke.
        is_failure: bool,
    },
}

/// What an answer says of its request, as far as it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens that the engine found in its cache.
    pub cached_tokens: Option<u32>,
    /// Tokens of all that it answered.
    pub completion_tokens: Option<u32>,
}

/// Takes reports.
#[derive(Clone, Debug)]
pub struct Reporter {
    pub books: Arc<Mutex<Books>>,
    pub view: Arc<View>,
    pub clock: Clock,
    pub registry: Arc<Registry>,
    pub index: Arc<RwLock<Index>>,
    pub drift: Arc<DriftWatch>,
    pub sources: Arc<SourceWatch>,
    pub receipts: Arc<Receipts>,
    pub lengths: Arc<OutputLengths>,
    pub outliers: Outliers,
    pub metrics: DecideMetrics,
}

/// Statuses from here on are the server's fault.
pub const HTTP_SERVER_ERRORS_FROM: u32 = 500;
/// Statuses from here on are failures, whose first byte says nothing of a prefill.
const HTTP_ERRORS_FROM: u32 = 400;

impl Reporter {
    /// Applies reports in order; says how many were of unknown decisions.
    pub fn take(&self, reports: Vec<Report>) -> u32 {
        let snapshot = self.view.current();
        let unknown = reports.into_iter().filter(|report| !self.apply(report, &snapshot)).count();
        u32::try_from(unknown).unwrap_or(u32::MAX)
    }

    /// False: its decision is not known.
    fn apply(&self, report: &Report, snapshot: &Snapshot) -> bool {
        let id = match report.decision {
            Decided::Indexer(id) => id,
            Decided::Elsewhere(reason) => {
                if let Reported::End { endpoint, http_status, response, is_failure, .. } = &report.what {
                    self.hear(endpoint, *is_failure, *http_status, snapshot);
                    self.count_served(endpoint, "", snapshot);
                    self.keep_answer(endpoint, *response, *is_failure, snapshot);
                    let labels = ReasonLabels { reason: reason.name() };
                    self.metrics.undecided.get_or_create(&labels).inc();
                }
                return true;
            }
        };
        let known = match &report.what {
            Reported::Alive => {
                self.count("alive");
                self.books.lock().report(id, Event::Renewed, snapshot, self.clock.now()).is_some()
            }
            Reported::FirstByte { endpoint, http_status } => {
                self.count("first_byte");
                self.hear(endpoint, false, *http_status, snapshot);
                self.receipts.began(id, endpoint, *http_status, report.elapsed);
                let reserved = self.reserved_place(id);
                let started = self.started(id, endpoint, snapshot);
                if let Some((entry, true)) = &started
                    && *http_status < HTTP_ERRORS_FROM
                {
                    self.sources.served(entry.reservation.place, self.clock.now());
                }
                if let Some((Entry { forecast: Some(forecast), reservation, .. }, true)) = &started
                    && *http_status < HTTP_ERRORS_FROM
                {
                    let labels = PolicyLabels { policy: forecast.policy };
                    self.metrics.ttft.get_or_create(&labels).observe(report.elapsed.as_secs_f64());
                    // Of a place that it was moved to, nobody knows what waited there.
                    if reserved == Some(reservation.place) {
                        self.note_speed(reservation.place, forecast, report.elapsed, snapshot);
                    }
                }
                started.is_some()
            }
            Reported::End { endpoint, http_status, usage, response, is_failure } => {
                self.count("end");
                if *is_failure {
                    self.hear(endpoint, true, *http_status, snapshot);
                }
                self.receipts.ended(
                    id,
                    &Fate {
                        endpoint: Some(endpoint.clone()).filter(|endpoint| !endpoint.is_empty()),
                        http_status: Some(*http_status).filter(|status| *status > 0),
                        whole_ms: Some(millis(report.elapsed)),
                        prompt_tokens: usage.prompt_tokens,
                        cached_tokens: usage.cached_tokens,
                        has_failed: *is_failure,
                        ..Fate::default()
                    },
                );
                self.keep_answer(endpoint, *response, *is_failure, snapshot);
                let entry = self.ended(id, endpoint, snapshot);
                let forecast = entry.as_ref().and_then(|entry| entry.forecast.as_ref());
                self.count_served(endpoint, forecast.map_or("", |forecast| forecast.policy), snapshot);
                if let Some(entry) = &entry {
                    self.note_length(entry, *usage);
                    self.compare(entry, *usage, snapshot);
                }
                entry.is_some()
            }
        };
        if !known {
            self.count("unknown");
        }
        known
    }

    /// The entry, and whether this was its first first byte.
    fn started(&self, id: DecisionId, endpoint: &str, snapshot: &Snapshot) -> Option<(Entry, bool)> {
        let now = self.clock.now();
        let mut books = self.books.lock();
        self.follow_move(&mut books, id, endpoint, snapshot);
        let first = books.ledger().get(id)?.phase == Phase::Queued;
        let entry = books.report(id, Event::Started, snapshot, now)?;
        Some((entry, first))
    }

    fn ended(&self, id: DecisionId, endpoint: &str, snapshot: &Snapshot) -> Option<Entry> {
        let now = self.clock.now();
        let mut books = self.books.lock();
        self.follow_move(&mut books, id, endpoint, snapshot);
        books.report(id, Event::Released, snapshot, now)
    }

    /// Moves a reservation to the endpoint that really serves it. That the request did not stay is an error of the
    /// endpoint that it left: it could not be reached, or the proxy did not think it could.
    fn follow_move(&self, books: &mut Books, id: DecisionId, endpoint: &str, snapshot: &Snapshot) {
        let Some((left, place)) = moved_to(books, id, endpoint, snapshot) else { return };
        let now = self.clock.now();
        if let Some((left, _)) = snapshot.by_place(left) {
            self.note_failure(left);
        }
        books.report(id, Event::Moved(place), snapshot, now);
    }

    /// Takes a failure, or the beginning of an answer, for what it says of the endpoint.
    fn hear(&self, endpoint: &str, is_failure: bool, http_status: u32, snapshot: &Snapshot) {
        let Some(endpoint) = snapshot.by_name(endpoint) else { return };
        if is_failure {
            self.note_failure(endpoint);
        } else if (1..HTTP_SERVER_ERRORS_FROM).contains(&http_status) {
            let standing = endpoint.meter.hear(Heard::Answered, self.outliers, self.clock.now());
            self.tell(endpoint, standing);
        }
    }

    fn note_failure(&self, endpoint: &Endpoint) {
        let now = self.clock.now();
        endpoint.errors.note(now);
        let standing = endpoint.meter.hear(Heard::Failed, self.outliers, now);
        self.tell(endpoint, standing);
    }

    fn tell(&self, endpoint: &Endpoint, changed: Option<Standing>) {
        match changed {
            None => {}
            Some(Standing::Trusted { .. }) => {
                self.metrics.ejections.get_or_create(&ResultLabels { result: "returned" }).inc();
                tracing::info!(endpoint = %endpoint.name, "answers again; chosen again");
            }
            Some(_) => {
                self.metrics.ejections.get_or_create(&ResultLabels { result: "ejected" }).inc();
                tracing::warn!(endpoint = %endpoint.name, "fails too often; not chosen for a while");
            }
        }
    }

    fn reserved_place(&self, id: DecisionId) -> Option<StreamId> {
        self.books.lock().ledger().get(id).map(|entry| entry.reservation.place)
    }

    /// Learns from the time to a first token, where it is known what had to be computed until then.
    fn note_speed(&self, place: StreamId, forecast: &Forecast, elapsed: Duration, snapshot: &Snapshot) {
        let Some((endpoint, rank)) = snapshot.by_place(place) else { return };
        let rank = usize::try_from(rank).ok().and_then(|rank| endpoint.ranks.get(rank));
        if let (Some(rank), Some(work_tokens)) = (rank, forecast.work_tokens) {
            rank.meter.note_first_token(work_tokens, millis(elapsed), self.clock.now());
        }
    }

    fn note_length(&self, entry: &Entry, usage: Usage) {
        let model = entry.forecast.as_ref().and_then(|forecast| forecast.model);
        if let (Some(model), Some(tokens)) = (model, usage.completion_tokens) {
            self.lengths.note(model.index, tokens, entry.reservation.sequences);
        }
    }

    /// `policy`: empty where another indexer decided, or none.
    fn count_served(&self, endpoint: &str, policy: &'static str, snapshot: &Snapshot) {
        if let Some(endpoint) = snapshot.by_name(endpoint) {
            let labels = ServedLabels { endpoint: endpoint.name.to_string(), policy };
            self.metrics.served.get_or_create(&labels).inc();
        }
    }

    /// Remembers who made a response, and tells peers. One that failed keeps nothing.
    fn keep_answer(
        &self,
        endpoint: &str,
        response: Option<ResponseKey>,
        is_failure: bool,
        snapshot: &Snapshot,
    ) {
        if let (Some(key), false, Some(endpoint)) = (response, is_failure, snapshot.by_name(endpoint)) {
            self.books.lock().answered(key, endpoint, self.clock.now());
        }
    }

    /// Holds what we made of the prompt, and the forecast for the place that served it, against what its engine says.
    fn compare(&self, entry: &Entry, usage: Usage, snapshot: &Snapshot) {
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

    fn count(&self, event: &'static str) {
        self.metrics.reports.get_or_create(&EventLabels { event }).inc();
    }
}

/// From where to where a reservation has to go because another endpoint than the reserved one serves it: to the same
/// rank there, as the rank's header travels with a retry. None: it stays.
fn moved_to(
    books: &Books,
    id: DecisionId,
    endpoint: &str,
    snapshot: &Snapshot,
) -> Option<(StreamId, StreamId)> {
    let reserved = books.ledger().get(id)?.reservation.place;
    let served = snapshot.by_name(endpoint)?;
    if served.ranks.iter().any(|rank| rank.place == reserved) {
        return None;
    }
    let rank = snapshot.by_place(reserved).map_or(0, |(_, rank)| rank);
    let same = usize::try_from(rank).ok().and_then(|rank| served.ranks.get(rank));
    same.or(served.ranks.first()).map(|rank| (reserved, rank.place))
}

// === impl Forecast ===

impl Forecast {
    fn predicted(&self, place: StreamId) -> Option<u32> {
        self.cached_tokens.iter().find(|(candidate, _)| *candidate == place).map(|(_, tokens)| *tokens)
    }
}
