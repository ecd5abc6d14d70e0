//! What became of earlier decisions: reports of gateways → ledger, forecasts held against facts, where responses are
//! kept, time to first byte.
//!
//! In: checked [`Report`]s of gateways, and those that peers pass on. Out: counters, and the ledger's events. A report
//! that cannot be matched is counted and changes nothing.
//!
//! A report of what another indexer decided does here what it does to load and to the endpoint, and is passed on to that
//! indexer: it alone has the receipt and the forecast. Where it is gone, or does not follow, nobody learns from the report.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use warmpath_kv::{Index, StreamId};

mod compare;
mod endpoints;
mod owed;

use crate::answers::ResponseKey;
use crate::books::Books;
use crate::clock::Clock;
use crate::config::Outliers;
use crate::decide::metrics::{DecideMetrics, EventLabels, PolicyLabels, ReasonLabels, ServedLabels};
use crate::drift::DriftWatch;
use crate::fleet::{Snapshot, View};
use crate::ledger::{DecisionId, Entry, Event, Phase};
use crate::lengths::OutputLengths;
use crate::models::Registry;
use crate::receipts::{Fate, Receipts, millis};
use crate::reported::{Decided, HTTP_ERRORS_FROM, Report, Reported, Usage};
use crate::sources::SourceWatch;

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

/// Who brings a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Via {
    Gateway,
    /// Another indexer, which has done all but what needs the decision.
    Peer,
}

// === impl Reporter ===

impl Reporter {
    /// Applies reports in order; says how many were of unknown decisions.
    pub fn take(&self, reports: Vec<Report>) -> u32 {
        let snapshot = self.view.current();
        let unknown = reports.into_iter().filter(|report| !self.apply(report, &snapshot)).count();
        u32::try_from(unknown).unwrap_or(u32::MAX)
    }

    /// Applies what was reported to a peer of a decision made here. False: it is not known any more.
    pub fn take_over(&self, report: &Report) -> bool {
        let snapshot = self.view.current();
        match report.decision {
            Decided::Indexer(id) => self.apply_to(id, report, Via::Peer, &snapshot),
            Decided::Elsewhere(_) => false,
        }
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
        self.count(match report.what {
            Reported::Alive => "alive",
            Reported::FirstByte { .. } => "first_byte",
            Reported::End { .. } => "end",
        });
        let known = self.apply_to(id, report, Via::Gateway, snapshot);
        if !known {
            self.count("unknown");
        }
        known
    }

    fn apply_to(&self, id: DecisionId, report: &Report, via: Via, snapshot: &Snapshot) -> bool {
        match &report.what {
            Reported::Alive => {
                self.books.lock().report(id, Event::Renewed, snapshot, self.clock.now()).is_some()
            }
            Reported::FirstByte { endpoint, http_status } => {
                if via == Via::Gateway {
                    self.hear(endpoint, false, *http_status, snapshot);
                }
                self.begun(id, (endpoint, *http_status), report, via, snapshot)
            }
            Reported::End { endpoint, http_status, usage, response, is_failure } => {
                if via == Via::Gateway {
                    if *is_failure {
                        self.hear(endpoint, true, *http_status, snapshot);
                    }
                    self.keep_answer(endpoint, *response, *is_failure, snapshot);
                }
                let fate = Fate {
                    endpoint: Some(endpoint.clone()).filter(|endpoint| !endpoint.is_empty()),
                    http_status: Some(*http_status).filter(|status| *status > 0),
                    whole_ms: Some(millis(report.elapsed)),
                    prompt_tokens: usage.prompt_tokens,
                    cached_tokens: usage.cached_tokens,
                    has_failed: *is_failure,
                    ..Fate::default()
                };
                self.receipts.ended(id, &fate);
                self.is_over(id, (endpoint, *usage), report, via, snapshot)
            }
        }
    }

    /// The first byte of a decision's answer came. False: the decision is not known.
    fn begun(
        &self,
        id: DecisionId,
        (endpoint, http_status): (&str, u32),
        report: &Report,
        via: Via,
        snapshot: &Snapshot,
    ) -> bool {
        self.receipts.began(id, endpoint, http_status, report.elapsed);
        let now = self.clock.now();
        let mut books = self.books.lock();
        let passed_on = via == Via::Gateway && books.pass_on(id, report);
        let reserved = books.ledger().get(id).map(|entry| (entry.reservation.place, entry.phase));
        self.follow_move(&mut books, id, endpoint, via, snapshot);
        let entry = books.report(id, Event::Started, snapshot, now);
        drop(books);
        let (Some(entry), Some((reserved, phase))) = (entry, reserved) else { return passed_on };
        if phase != Phase::Queued || http_status >= HTTP_ERRORS_FROM {
            return true;
        }
        let place = entry.reservation.place;
        self.sources.served(place, now);
        if let Some(forecast) = &entry.forecast {
            let labels = PolicyLabels { policy: forecast.policy };
            self.metrics.ttft.get_or_create(&labels).observe(report.elapsed.as_secs_f64());
            // Of a place that it was moved to, nobody knows what waited there.
            if reserved == place {
                self.note_speed(place, forecast, report.elapsed, snapshot);
            }
        }
        true
    }

    /// A decision's request is over. False: the decision is not known.
    fn is_over(
        &self,
        id: DecisionId,
        (endpoint, usage): (&str, Usage),
        report: &Report,
        via: Via,
        snapshot: &Snapshot,
    ) -> bool {
        let now = self.clock.now();
        let mut books = self.books.lock();
        let passed_on = via == Via::Gateway && books.pass_on(id, report);
        self.follow_move(&mut books, id, endpoint, via, snapshot);
        let entry = books.report(id, Event::Released, snapshot, now);
        drop(books);
        if !passed_on {
            let forecast = entry.as_ref().and_then(|entry| entry.forecast.as_ref());
            self.count_served(endpoint, forecast.map_or("", |forecast| forecast.policy), snapshot);
        }
        if let Some(entry) = &entry {
            self.note_length(entry, usage);
            self.compare(entry, usage, snapshot);
            if let Reported::End { http_status, is_failure: false, .. } = report.what
                && (1..HTTP_ERRORS_FROM).contains(&http_status)
            {
                self.note_owed(entry, usage, report.elapsed);
            }
        }
        passed_on || entry.is_some()
    }

    /// Moves a reservation to the endpoint that really serves it. That the request did not stay is an error of the
    /// endpoint that it left: it could not be reached, or the proxy did not think it could.
    fn follow_move(&self, books: &mut Books, id: DecisionId, endpoint: &str, via: Via, snapshot: &Snapshot) {
        let Some((left, place)) = moved_to(books, id, endpoint, snapshot) else { return };
        if let (Some((left, _)), Via::Gateway) = (snapshot.by_place(left), via) {
            self.note_failure(left, books);
        }
        books.report(id, Event::Moved(place), snapshot, self.clock.now());
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
