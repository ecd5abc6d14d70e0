//! What reports say of endpoints, seen here or told by peers: whether they answer, and how fast.

use std::time::Duration;

use warmpath_kv::{Millis, StreamId};

use super::Reporter;
use crate::books::{Books, IndexerId, Seen, Sighting};
use crate::decide::metrics::ResultLabels;
use crate::fleet::{Endpoint, FirstToken, Heard, Snapshot, Standing};
use crate::ledger::Forecast;
use crate::reported::HTTP_SERVER_ERRORS_FROM;

/// The longest ejection that is taken over from a peer.
const EJECTION_MS_MAX: u64 = 600_000;

impl Reporter {
    /// Takes a failure, or the beginning of an answer, for what it says of the endpoint.
    pub(super) fn hear(&self, endpoint: &str, is_failure: bool, http_status: u32, snapshot: &Snapshot) {
        let Some(endpoint) = snapshot.by_name(endpoint) else { return };
        if is_failure {
            self.note_failure(endpoint, &mut self.books.lock());
        } else if (1..HTTP_SERVER_ERRORS_FROM).contains(&http_status) {
            let now = self.clock.now();
            // While an endpoint never fails, its answers change nothing for anybody.
            if endpoint.meter.has_failed_lately(now) {
                self.books.lock().saw(endpoint, Seen::Ended { has_failed: false });
            }
            self.note(endpoint, Heard::Answered, now);
        }
    }

    pub(super) fn note_failure(&self, endpoint: &Endpoint, books: &mut Books) {
        books.saw(endpoint, Seen::Ended { has_failed: true });
        let now = self.clock.now();
        endpoint.errors.note(now);
        self.note(endpoint, Heard::Failed, now);
    }

    fn note(&self, endpoint: &Endpoint, heard: Heard, now: Millis) {
        let standing = endpoint.meter.hear(heard, self.outliers, now);
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

    /// Learns from the time to a first token, where it is known what had to be computed until then.
    pub(super) fn note_speed(
        &self,
        place: StreamId,
        forecast: &Forecast,
        elapsed: Duration,
        snapshot: &Snapshot,
    ) {
        let Some((endpoint, rank)) = snapshot.by_place(place) else { return };
        let meter = usize::try_from(rank).ok().and_then(|rank| endpoint.ranks.get(rank));
        if let (Some(of_rank), Some(work_tokens)) = (meter, forecast.work_tokens) {
            let ttft_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
            let token = FirstToken { work_tokens, ttft_us, by: None };
            of_rank.meter.note_first_token(token, self.clock.now());
            let seen = Seen::FirstToken { rank, work_tokens, ttft_us, age_ms: 0 };
            self.books.lock().saw(endpoint, seen);
        }
    }

    /// Takes in what the peer `sender` saw of an endpoint. False: it is none of ours.
    pub fn learn(&self, sender: IndexerId, sighting: &Sighting) -> bool {
        let snapshot = self.view.current();
        let Some(endpoint) = snapshot.by_name(&sighting.endpoint) else { return false };
        let now = self.clock.now();
        match sighting.what {
            Seen::FirstToken { rank, work_tokens, ttft_us, age_ms } => {
                let rank = usize::try_from(rank).ok().and_then(|rank| endpoint.ranks.get(rank));
                let Some(rank) = rank else { return false };
                let token = FirstToken { work_tokens, ttft_us, by: Some(sender.name()) };
                rank.meter.note_first_token(token, Millis(now.0.saturating_sub(age_ms)));
            }
            Seen::Ended { has_failed: true } => {
                endpoint.errors.note(now);
                self.note(endpoint, Heard::Failed, now);
            }
            Seen::Ended { has_failed: false } => self.note(endpoint, Heard::Answered, now),
            Seen::Ejected { for_ms, times } => {
                let until = now.plus(for_ms.min(EJECTION_MS_MAX));
                if endpoint.meter.take_ejection(until, times) {
                    self.tell(endpoint, Some(endpoint.meter.standing()));
                }
            }
            Seen::Draining { draining, at_unix_ms } => {
                if endpoint.meter.order_draining(draining, at_unix_ms) {
                    tracing::info!(endpoint = %endpoint.name, draining, "an operator asked a peer for it");
                    if !draining {
                        endpoint.meter.begin(now);
                    }
                }
            }
        }
        true
    }

    /// A peer has given an endpoint something to compute.
    pub fn note_pick_of_peer(&self, name: &str, rank: u32, tokens: u64) {
        let snapshot = self.view.current();
        let Some(endpoint) = snapshot.by_name(name) else { return };
        let now = self.clock.now();
        endpoint.meter.hear(Heard::Picked, self.outliers, now);
        if let Some(rank) = usize::try_from(rank).ok().and_then(|rank| endpoint.ranks.get(rank)) {
            rank.meter.note_pick(tokens, None, now);
        }
    }

    /// Forgets the first tokens that a peer told of, as it is about to tell all of them again.
    pub fn forget_first_tokens(&self, of: IndexerId) {
        let snapshot = self.view.current();
        for rank in snapshot.endpoints.iter().flat_map(|endpoint| &endpoint.ranks) {
            rank.meter.forget_first_tokens(of.name());
        }
    }
}
