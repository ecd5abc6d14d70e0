//! Follows one peer: connects, applies what it tells, and starts again when the stream ends.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use warmpath_kv::Millis;
use warmpath_proto::v1::peer_client::PeerClient;
use warmpath_proto::v1::{FollowRequest, LedgerChanges};

use super::audience::PROTOCOL;
use super::convert;
use super::metrics::{HeardLabels, PeerLabels, PeerMetrics, ReportLabels};
use crate::books::{Books, Change, IndexerId, PeerChange, Placed, What};
use crate::clock::Clock;
use crate::config::HostPort;
use crate::fleet::{Snapshot, View};
use crate::ledger::DecisionId;
use crate::lookups::Lookups;
use crate::report::Reporter;

/// A connection that is not there by now is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Notices a peer that vanished without closing.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// First pause between attempts; doubled up to the longest.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// Follows one configured peer.
#[derive(Clone, Debug)]
pub struct Follower {
    pub peer: HostPort,
    pub books: Arc<Mutex<Books>>,
    pub view: Arc<View>,
    pub clock: Clock,
    /// For what gateways reported to the peer, and for what it saw of endpoints.
    pub reporter: Reporter,
    /// For the blocks that its picks will bring.
    pub cached: Arc<Lookups>,
    pub metrics: PeerMetrics,
}

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
    #[error("a message without an indexer's id")]
    Nameless,
    /// The list of peers may be the same for all of them.
    #[error("this indexer itself")]
    Myself,
}

// === impl Follower ===

impl Follower {
    /// Runs until `stop`, or until the peer turns out to be this indexer itself.
    pub async fn run(self, stop: CancellationToken) {
        let connected =
            self.metrics.connected.get_or_create_owned(&PeerLabels { peer: self.peer.to_string() });
        let mut pause = RETRY_FIRST;
        loop {
            let end = tokio::select! {
                () = stop.cancelled() => return,
                end = self.follow(&mut pause) => end,
            };
            connected.set(0);
            if let FollowError::Myself = end {
                tracing::info!(peer = %self.peer, "a configured peer is this indexer itself; not followed");
                // Owned tasks end at the drain only.
                return stop.cancelled().await;
            }
            tracing::warn!(peer = %self.peer, why = %end, retry_ms = pause.as_millis(), "a peer is not followed");
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(RETRY_LONGEST);
        }
    }

    /// Follows until the stream ends, and says why it did. Resets `pause` once the peer has told something.
    async fn follow(&self, pause: &mut Duration) -> FollowError {
        let mut stream = match self.connect().await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let mut named = None;
        loop {
            let batch = match stream.message().await {
                Ok(Some(batch)) => batch,
                Ok(None) => return FollowError::Ended,
                Err(status) => return status.into(),
            };
            let Some(sender) = u32::try_from(batch.indexer_id).ok().and_then(IndexerId::new) else {
                return FollowError::Nameless;
            };
            if sender == self.books.lock().own() {
                return FollowError::Myself;
            }
            if named.replace(sender) != Some(sender) {
                *pause = RETRY_FIRST;
                self.metrics.connected.get_or_create(&PeerLabels { peer: self.peer.to_string() }).set(1);
                tracing::info!(peer = %self.peer, "a peer is followed");
            }
            self.apply(sender, batch);
        }
    }

    async fn connect(&self) -> Result<Streaming<LedgerChanges>, FollowError> {
        let channel: Channel = Endpoint::from_shared(format!("http://{}", self.peer))
            .map_err(FollowError::Address)?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .tcp_nodelay(true)
            .connect()
            .await
            .map_err(FollowError::Connect)?;
        let follower_id = self.books.lock().own().get().into();
        Ok(PeerClient::new(channel)
            .follow(FollowRequest { follower_id, protocol: PROTOCOL })
            .await?
            .into_inner())
    }

    fn apply(&self, sender: IndexerId, batch: LedgerChanges) {
        let (fleet, now) = (self.view.current(), self.clock.now());
        let is_our_secret = batch.secret_check == self.cached.secret_check();
        let told = batch.changes.len();
        let changes = batch.changes.into_iter();
        let changes: Vec<_> =
            changes.filter_map(|change| convert::from_wire(change, is_our_secret)).collect();
        self.count("unreadable", told - changes.len());
        if batch.snapshot {
            let named: HashSet<DecisionId> = changes
                .iter()
                .filter(|change| matches!(change.what, What::Reserved(_)))
                .map(|change| change.id)
                .collect();
            self.books.lock().keep_only(sender, &named, now);
            self.reporter.forget_first_tokens(sender);
        }
        for change in changes {
            match change.what {
                What::Reported(report) => {
                    let result = if self.reporter.take_over(&report) { "taken" } else { "unknown" };
                    self.metrics.reports.get_or_create(&ReportLabels { result }).inc();
                }
                What::Seen(sighting) if self.reporter.learn(sender, &sighting) => self.count("applied", 1),
                What::Seen(_) => self.count("unknown_endpoint", 1),
                _ => self.hear(sender, change, &fleet, now),
            }
        }
    }

    /// Enters a change into the books, and what a pick of the peer means for its endpoint.
    fn hear(&self, sender: IndexerId, change: Change, fleet: &Snapshot, now: Millis) {
        let placed = match &change.what {
            What::Reserved(placed) => Some(placed.clone()),
            _ => None,
        };
        let heard = self.books.lock().hear(sender, change, fleet, now);
        if let (PeerChange::Begun, Some(placed)) = (heard, placed) {
            self.expect(&placed, fleet, now);
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
