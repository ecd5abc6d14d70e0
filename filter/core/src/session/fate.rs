//! What was decided for a request, and the books kept about it until it ends.

use crate::headers::{self, is_endpoint};
use crate::limits::{CANDIDATES_MAX, CONFIRM_AFTER_MS, LEASE_RENEWAL_MS};
use crate::outcome::{Outcome, Reason};
use crate::report::{End, EndCause, Event, What};
use crate::ring::{Place, Ring};
use crate::usage::Usage;
use crate::worker::Worker;

use super::exchange::{Candidate, Reply, Route};

/// A decision, and where its load is counted.
#[derive(Clone, Debug)]
pub(super) struct Fate {
    outcome: Outcome,
    reason: Option<Reason>,
    /// 0: no indexer decided.
    decision_id: u64,
    /// The decision, or the request's start without one.
    since_us: u64,
    /// What the indexer ranked.
    candidates: Vec<Candidate>,
    /// 0: not known.
    prompt_tokens: u32,
    /// Empty: no indexer decided.
    policy: String,
    /// What the proxy was told, comma-separated; empty: nothing.
    sent_to: String,
    /// The endpoint on which the ring counts this request.
    counted_on: Option<String>,
    /// When the indexer last heard of it; none: not yet.
    told_us: Option<u64>,
}

impl Fate {
    pub(super) fn passed(reason: Reason, since_us: u64) -> Self {
        Self {
            outcome: Outcome::Passed,
            reason: Some(reason),
            decision_id: 0,
            since_us,
            candidates: vec![],
            prompt_tokens: 0,
            policy: String::new(),
            sent_to: String::new(),
            counted_on: None,
            told_us: None,
        }
    }

    pub(super) fn fallen_back(reason: Reason, endpoint: &str, worker: &mut Worker, since_us: u64) -> Self {
        let mut fate = Self { outcome: Outcome::Fallback, ..Self::passed(reason, since_us) };
        fate.count_on(endpoint, worker);
        fate
    }

    /// The reply must have a usable candidate.
    pub(super) fn routed(reply: Reply, worker: &mut Worker, now_us: u64) -> Self {
        let mut fate = Self {
            outcome: if reply.load_only { Outcome::LoadOnly } else { Outcome::Scored },
            reason: reply.reason,
            ..Self::passed(Reason::Other, now_us).decided_by(&reply)
        };
        if let Some(first) = reply.candidates.first() {
            fate.count_on(&first.place.endpoint, worker);
        }
        fate.candidates = reply.candidates;
        fate
    }

    pub(super) fn decided_by(mut self, reply: &Reply) -> Self {
        self.decision_id = reply.decision_id;
        self.prompt_tokens = reply.prompt_tokens;
        self.policy.clone_from(&reply.policy);
        self
    }

    pub(super) fn sent(mut self, route: &Route) -> Self {
        self.sent_to.clone_from(&route.destination);
        self
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.outcome
    }

    pub(super) fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// The indexer hears of it.
    pub(super) fn is_accounted(&self) -> bool {
        !self.reason.is_some_and(Reason::is_foreign)
    }

    /// An indexer decided, and holds a reservation for it.
    pub(super) fn is_decided(&self) -> bool {
        self.decision_id != 0
    }

    /// When its decision must be confirmed, or its lease renewed.
    pub(super) fn due_us(&self) -> Option<u64> {
        let due_us = match self.told_us {
            None => self.since_us + CONFIRM_AFTER_MS * 1000,
            Some(told_us) => told_us + LEASE_RENEWAL_MS * 1000,
        };
        self.is_decided().then_some(due_us)
    }

    pub(super) fn renew(&mut self, worker: &mut Worker, now_us: u64) {
        if self.due_us().is_some_and(|due| due <= now_us) {
            self.tell(What::Alive, worker, now_us);
        }
    }

    pub(super) fn tell(&mut self, what: What, worker: &mut Worker, now_us: u64) {
        if self.is_accounted() {
            let elapsed_us = now_us.saturating_sub(self.since_us);
            worker.reports.push(Event { decision_id: self.decision_id, elapsed_us, what });
            self.told_us = Some(now_us);
        }
    }

    /// The endpoint that really answers is known: the load is counted there.
    pub(super) fn served_by(&mut self, endpoint: &str, worker: &mut Worker) {
        if self.is_accounted() && is_endpoint(endpoint) && self.counted_on.as_deref() != Some(endpoint) {
            self.release(worker);
            self.count_on(endpoint, worker);
        }
    }

    /// It is over; `attempts` were made to reach an endpoint.
    pub(super) fn judge(&self, endpoint: &str, attempts: u32, worker: &mut Worker) {
        if attempts == 1 && !self.sent_to.is_empty() && is_endpoint(endpoint) {
            worker.followed.saw(&self.sent_to, endpoint);
        }
    }

    /// The load is counted nowhere any more.
    pub(super) fn release(&mut self, worker: &mut Worker) {
        if let Some(endpoint) = self.counted_on.take() {
            worker.ring.release(&endpoint);
        }
    }

    fn count_on(&mut self, endpoint: &str, worker: &mut Worker) {
        worker.ring.acquire(endpoint);
        self.counted_on = Some(endpoint.to_owned());
    }

    /// The headers that tell the client how its request was routed. `endpoint` served it.
    pub(super) fn receipt(&self, endpoint: &str) -> Vec<(&'static str, String)> {
        let mut receipt = vec![(headers::OUTCOME, self.outcome.name().to_owned())];
        if let Some(reason) = self.reason {
            receipt.push((headers::REASON, reason.name().to_owned()));
        }
        if self.is_decided() {
            receipt.push((headers::DECISION, format!("{:016x}", self.decision_id)));
            receipt.push((headers::POLICY, self.policy.clone()));
        }
        if is_endpoint(endpoint) {
            receipt.push((headers::ENDPOINT, endpoint.to_owned()));
        }
        if self.outcome == Outcome::Scored {
            let served = self.candidates.iter().find(|c| c.place.endpoint == endpoint);
            if let Some(candidate) = served {
                receipt.push((headers::CACHED_TOKENS, candidate.cached_tokens.to_string()));
            }
            receipt.push((headers::PROMPT_TOKENS, self.prompt_tokens.to_string()));
        }
        receipt
    }
}

/// Keeps the candidates that a header can name and whose retries fit its rank, and makes the route of them.
pub(super) fn usable(candidates: &mut Vec<Candidate>, ring: &Ring) -> Option<Route> {
    candidates.retain(|c| is_endpoint(&c.place.endpoint));
    candidates.truncate(CANDIDATES_MAX);
    let first = candidates.first()?.place.clone();
    // A retry keeps the rank of the first choice: only an endpoint that has this rank can take it over.
    candidates
        .retain(|c| c.place == first || first.rank.is_none_or(|rank| ring.has_rank(&c.place.endpoint, rank)));
    Some(route(candidates.iter().map(|c| &c.place)))
}

pub(super) fn route<'p>(places: impl Iterator<Item = &'p Place>) -> Route {
    let mut route = Route { destination: String::new(), rank: None };
    let mut named: Vec<&str> = Vec::with_capacity(CANDIDATES_MAX);
    for place in places {
        // Two ranks of one endpoint are one destination.
        if named.contains(&place.endpoint.as_str()) {
            continue;
        }
        if named.is_empty() {
            route.rank = place.rank;
        } else {
            route.destination.push(',');
        }
        route.destination.push_str(&place.endpoint);
        named.push(&place.endpoint);
    }
    route
}

/// A decision that came too late was never followed: its reservation must go.
pub(super) fn release_unused(reply: Reply, worker: &mut Worker) {
    if reply.decision_id != 0 {
        let end = End {
            endpoint: String::new(),
            http_status: 0,
            cause: EndCause::ClientReset,
            usage: Usage::default(),
            attempts: 0,
            fallback_reason: None,
            response: None,
        };
        worker.reports.push(Event { decision_id: reply.decision_id, elapsed_us: 0, what: What::End(end) });
    }
}
