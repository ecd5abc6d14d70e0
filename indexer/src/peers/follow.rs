//! Follows one address of a peer: connects, applies what it tells, and starts again when the stream ends, for as long as a
//! configured name stands for the address.
//!
//! What a peer tells of an endpoint that is not known here cannot be kept: the endpoint's name was looked up there first. So
//! such names are remembered, and once one of them has come the peer is followed anew, whose snapshot tells it all again.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use warmpath_kv::Millis;
use warmpath_kv::index::Reader;
use warmpath_proto::v1::peer_client::PeerClient;
use warmpath_proto::v1::{FollowRequest, LedgerChanges};

use super::BATCH_CHANGES_MAX;
use super::audience::PROTOCOL;
use super::convert;
use super::followed::{Claim, Followed};
use super::metrics::{HeardLabels, PeerMetrics, ReportLabels};
use super::roster::Listed;
use crate::books::{Books, Change, IndexerId, PeerChange, Placed, What};
use crate::clock::Clock;
use crate::config::HostPort;
use crate::fleet::{Snapshot, View};
use crate::ledger::DecisionId;
use crate::logs::News;
use crate::report::Reporter;

/// A connection that is not there by now is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Notices a peer that vanished without closing.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// First pause between attempts; doubled up to the longest.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);
/// Of an indexer that is followed at another of its addresses: each try has it tell all that it holds.
const RETRY_TWICE: Duration = Duration::from_secs(30);
/// A peer tells all that it holds, were it nothing, as soon as it is followed.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);
/// How often it is looked whether an endpoint has come that the peer told of before.
const LOOK: Duration = Duration::from_millis(500);
/// Names remembered of endpoints that are not known here.
const MISSED_MAX: usize = 4096;
/// Open decisions of one peer: more than any indexer is allowed by default.
const NAMED_MAX: usize = 1 << 20;

/// Follows one indexer.
#[derive(Debug)]
pub(super) struct Follower {
    /// As configured.
    pub(super) name: HostPort,
    pub(super) address: SocketAddr,
    pub(super) listed: Listed,
    pub(super) ear: Ear,
}

/// Where that goes what peers tell. Clones share it.
#[derive(Clone, Debug)]
pub struct Ear {
    pub books: Arc<Mutex<Books>>,
    pub view: Arc<View>,
    pub clock: Clock,
    /// For what gateways reported to the peer, and for what it saw of endpoints.
    pub reporter: Reporter,
    /// For the blocks that its picks will bring.
    pub cached: Reader,
    /// The peers that all followers of this indexer follow.
    pub followed: Followed,
    pub metrics: PeerMetrics,
}

/// What is kept of one connection to a peer.
#[derive(Debug, Default)]
struct Session {
    missed: Missed,
    /// The open decisions that a snapshot has named, until all of it that is about those has come.
    named: Option<HashSet<DecisionId>>,
}

/// Endpoints that a peer told of and that are not known here.
#[derive(Debug, Default)]
struct Missed(HashSet<Arc<str>>);

/// Why following ended.
#[derive(Debug, Error)]
enum FollowError {
    #[error("not a usable address: {0}")]
    Address(tonic::transport::Error),
    #[error("cannot connect: {0}")]
    Connect(tonic::transport::Error),
    #[error("{}: {}", .0.code(), .0.message())]
    Stream(#[from] tonic::Status),
    #[error("ended by the peer")]
    Ended,
    #[error("connected, and nothing was told within {} s", FIRST_MESSAGE.as_secs())]
    Silent,
    #[error("a message without an indexer's id")]
    Nameless,
    /// The list of peers may be the same for all of them.
    #[error("this indexer itself")]
    Myself,
    #[error("it is followed already, under another of its names")]
    Twice,
    #[error("an endpoint has come that it told of before")]
    Grown,
}

// === impl Follower ===

impl Follower {
    /// Runs until `stop`, or until it cannot be followed and no name stands for it any more.
    pub(super) async fn run(self, stop: CancellationToken) {
        let (mut pause, mut told) = (RETRY_FIRST, News::default());
        let Self { name, address, .. } = &self;
        loop {
            let end = tokio::select! {
                () = stop.cancelled() => return,
                end = self.follow(&mut pause, &mut told) => end,
            };
            match end {
                FollowError::Grown => {
                    tracing::debug!(peer = %name, %address, why = %end, "a peer is followed anew");
                    continue;
                }
                FollowError::Myself => {
                    tracing::info!(peer = %name, %address, "a configured peer is this indexer itself; not followed");
                    return stop.cancelled().await;
                }
                _ => {}
            }
            if !self.listed.is_so() {
                tracing::info!(peer = %name, %address, why = %end, "a peer has gone");
                return;
            }
            let rest = if let FollowError::Twice = end { RETRY_TWICE } else { pause };
            if told.is_news(end.what(), Instant::now()) {
                let retry_ms = rest.as_millis();
                tracing::warn!(peer = %name, %address, why = %end, retry_ms, "a peer is not followed");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(rest) => {}
            }
            if !self.listed.is_so() {
                return;
            }
            pause = (pause * 2).min(RETRY_LONGEST);
        }
    }

    /// Follows until the stream ends, and says why it did. Resets `pause` and `told` once the peer has told something.
    async fn follow(&self, pause: &mut Duration, told: &mut News) -> FollowError {
        let late = tokio::time::sleep(FIRST_MESSAGE);
        tokio::pin!(late);
        let connected = tokio::select! {
            connected = self.connect() => connected,
            () = &mut late => return FollowError::Silent,
        };
        let mut stream = match connected {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let ear = &self.ear;
        let mut claim: Option<Claim> = None;
        let mut session = Session::default();
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let message = tokio::select! {
                // Nothing of a message is lost where it is not there yet: it stays in the stream.
                message = stream.message() => message,
                () = &mut late, if claim.is_none() => return FollowError::Silent,
                _ = looks.tick() => {
                    if session.missed.has_come(&ear.view.current()) {
                        return FollowError::Grown;
                    }
                    continue;
                }
            };
            let batch = match message {
                Ok(Some(batch)) => batch,
                Ok(None) => return FollowError::Ended,
                Err(status) => return status.into(),
            };
            let Some(sender) = u32::try_from(batch.indexer_id).ok().and_then(IndexerId::new) else {
                return FollowError::Nameless;
            };
            if sender == ear.books.lock().own() {
                return FollowError::Myself;
            }
            if claim.as_ref().is_none_or(|claim| claim.peer() != sender) {
                let count = ear.metrics.connected_to(&self.name);
                let Some(new) = ear.followed.claim(sender, count) else { return FollowError::Twice };
                claim = Some(new);
                *pause = RETRY_FIRST;
                told.clear();
                tracing::info!(peer = %self.name, address = %self.address, "a peer is followed");
            }
            if let Some(claim) = &claim {
                claim.note(batch.secret_check);
            }
            ear.apply(sender, batch, &mut session);
        }
    }

    async fn connect(&self) -> Result<Streaming<LedgerChanges>, FollowError> {
        let channel: Channel = Endpoint::from_shared(format!("http://{}", self.address))
            .map_err(FollowError::Address)?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .tcp_nodelay(true)
            .connect()
            .await
            .map_err(FollowError::Connect)?;
        let follower_id = self.ear.books.lock().own().get().into();
        Ok(PeerClient::new(channel)
            .follow(FollowRequest { follower_id, protocol: PROTOCOL })
            .await?
            .into_inner())
    }
}

// === impl Ear ===

impl Ear {
    fn apply(&self, sender: IndexerId, batch: LedgerChanges, session: &mut Session) {
        let (fleet, now) = (self.view.current(), self.clock.now());
        let is_our_secret = batch.secret_check == self.cached.secret_check();
        let told = batch.changes.len();
        let changes = batch.changes.into_iter();
        let changes: Vec<_> =
            changes.filter_map(|change| convert::from_wire(change, is_our_secret)).collect();
        self.count("unreadable", told - changes.len());
        if batch.snapshot {
            session.named = Some(HashSet::new());
            self.reporter.forget_first_tokens(sender);
        }
        if let Some(named) = &mut session.named {
            let reserved = changes.iter().filter(|change| matches!(change.what, What::Reserved(_)));
            named.extend(reserved.map(|change| change.id));
            // Open decisions come first, in full batches but for the last.
            let is_whole = told < BATCH_CHANGES_MAX || named.len() > NAMED_MAX;
            if let Some(named) = session.named.take_if(|_| is_whole) {
                self.books.lock().keep_only(sender, &named, now);
            }
        }
        for change in changes {
            match change.what {
                What::Reported(report) => {
                    let result = if self.reporter.take_over(&report) { "taken" } else { "unknown" };
                    self.metrics.reports.get_or_create(&ReportLabels { result }).inc();
                }
                What::Seen(sighting) if self.reporter.learn(sender, &sighting) => self.count("applied", 1),
                What::Seen(sighting) => {
                    session.missed.note(sighting.endpoint, &fleet);
                    self.count("unknown_endpoint", 1);
                }
                _ => self.hear(sender, change, (&fleet, now), &mut session.missed),
            }
        }
    }

    /// Enters a change into the books, and what a pick of the peer means for its endpoint.
    fn hear(
        &self,
        sender: IndexerId,
        change: Change,
        (fleet, now): (&Snapshot, Millis),
        missed: &mut Missed,
    ) {
        let placed = match &change.what {
            What::Reserved(placed) => Some(placed.clone()),
            _ => None,
        };
        let endpoint = match &change.what {
            What::Reserved(placed) => Some(placed.endpoint.clone()),
            What::Answered { endpoint, .. } => Some(endpoint.clone()),
            _ => None,
        };
        let heard = self.books.lock().hear(sender, change, fleet, now);
        if let (PeerChange::Begun, Some(placed)) = (heard, placed) {
            self.expect(&placed, fleet, now);
        }
        if let (PeerChange::UnknownEndpoint, Some(endpoint)) = (heard, endpoint) {
            missed.note(endpoint, fleet);
        }
        let result = match heard {
            PeerChange::Applied | PeerChange::Begun => "applied",
            PeerChange::UnknownEndpoint => "unknown_endpoint",
            PeerChange::UnknownDecision => "unknown_decision",
            PeerChange::Refused => "refused",
        };
        self.count(result, 1);
    }

    /// A pick of the peer's: its endpoint has more to do, and will hold more.
    fn expect(&self, placed: &Placed, fleet: &Snapshot, now: Millis) {
        self.reporter.note_pick_of_peer(&placed.endpoint, placed.rank, placed.queued_tokens);
        if let (Some(expected), Some(place)) = (&placed.expected, placed.place(fleet)) {
            self.metrics.expected_blocks.inc_by(expected.keys.len() as u64);
            self.cached.speculate(place, &expected.keys, now.plus(expected.for_ms));
        }
    }

    fn count(&self, result: &'static str, changes: usize) {
        if changes > 0 {
            self.metrics.heard.get_or_create(&HeardLabels { result }).inc_by(changes as u64);
        }
    }
}

// === impl FollowError ===

impl FollowError {
    /// What the log is told of once in a while.
    fn what(&self) -> &'static str {
        match self {
            Self::Address(_) => "address",
            Self::Connect(_) => "connect",
            Self::Stream(_) => "stream",
            Self::Ended => "ended",
            Self::Silent => "silent",
            Self::Nameless => "nameless",
            Self::Myself => "myself",
            Self::Twice => "twice",
            Self::Grown => "grown",
        }
    }
}

// === impl Missed ===

impl Missed {
    /// Of an endpoint that is known here something else was unknown, which will not come.
    fn note(&mut self, endpoint: Arc<str>, fleet: &Snapshot) {
        if self.0.len() < MISSED_MAX && fleet.by_name(&endpoint).is_none() {
            self.0.insert(endpoint);
        }
    }

    fn has_come(&self, fleet: &Snapshot) -> bool {
        self.0.iter().any(|name| fleet.by_name(name).is_some())
    }
}

#[cfg(test)]
mod tests;
