//! Several indexers deciding like one: each follows the others' ledgers, and what they see of endpoints. A configured name
//! may stand for all of them: each of its addresses is followed.
//!
//! In: the books' changes, and the batches of peers. Out: batches to followers, and the books' entries of decisions that
//! peers made; what peers saw of endpoints goes to the endpoints' meters, reports of decisions made here to the
//! [`Reporter`](crate::report::Reporter). A peer that is gone costs nothing but knowledge: its entries count until their
//! leases end, what it saw until it is forgotten like everything that was seen, and decisions go on with what is known here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use warmpath_kv::index::Reader;
use warmpath_proto::v1::peer_server::Peer;
use warmpath_proto::v1::{FollowRequest, LedgerChanges};

mod audience;
mod convert;
mod follow;
mod followed;
pub mod metrics;
mod names;
mod roster;
mod snapshot;
#[cfg(test)]
mod tests;

pub use follow::Ear;
pub use followed::Followed;
pub use metrics::PeerMetrics;
pub use names::{PeerNames, REFRESH};

use crate::books::{Books, Change, IndexerId, Pending, What};
use crate::clock::Clock;
use crate::fleet::View;
use crate::rpc::status::{follow_again, invalid_follower, served_at_once};
use audience::{Audience, Following};
use metrics::ReportLabels;
use snapshot::Snapshot;

/// Between two batches: a change after a pause is told at once, those that follow it sooner than this share the next batch. The
/// sooner, the more several indexers decide like one: docs/benchmarks.md, "Several indexers".
const BATCH_GAP: Duration = Duration::from_millis(1);
/// How often followers are counted where there is nothing to tell.
const COUNT_EVERY: Duration = Duration::from_millis(500);
/// Changes in a batch, as in the contract.
const BATCH_CHANGES_MAX: usize = 4096;
/// Keys of expected blocks in a batch: a megabyte, of the four that a message may have.
const BATCH_KEYS_MAX: usize = 1 << 17;
/// Batches that a slow follower may be behind before it has to start again.
const BATCHES_BEHIND_MAX: usize = 1024;

/// Followers at the same time: more than any fleet has indexers.
const FOLLOWERS_MAX: usize = 256;

/// Tells followers what changes here, until it is dropped.
#[derive(Debug)]
pub struct Publisher {
    books: Arc<Mutex<Books>>,
    batches: broadcast::Sender<Batch>,
    namer: Namer,
    /// The check of our secret that followers were told last.
    told_check: AtomicU64,
    metrics: PeerMetrics,
}

/// What every batch says of its sender.
#[derive(Clone, Copy, Debug)]
struct Name {
    own: IndexerId,
    /// Of the secret that its block keys are made with.
    secret_check: u64,
}

/// Names us as we are now: the secret may change, at the start and where an older one is heard of.
#[derive(Clone, Debug)]
struct Namer {
    own: IndexerId,
    cached: Reader,
}

#[derive(Clone, Debug)]
enum Batch {
    Changes(LedgerChanges),
    /// Changes were lost: every follower has to start again.
    Restart,
}

/// Serves `Peer`.
#[derive(Clone, Debug)]
pub struct PeerService {
    books: Arc<Mutex<Books>>,
    view: Arc<View>,
    clock: Clock,
    namer: Namer,
    /// Weak, so that every stream ends, with all that was told, when the publisher does.
    batches: broadcast::WeakSender<Batch>,
}

// === impl Publisher ===

impl Publisher {
    /// `cached`: makes the block keys that are told.
    pub fn new(books: Arc<Mutex<Books>>, cached: Reader, metrics: PeerMetrics) -> Self {
        let (batches, _) = broadcast::channel(BATCHES_BEHIND_MAX);
        let namer = Namer { own: books.lock().own(), cached };
        Self { books, batches, told_check: AtomicU64::new(namer.name().secret_check), namer, metrics }
    }

    /// The service through which others follow.
    pub fn service(&self, view: Arc<View>, clock: Clock) -> PeerService {
        let (books, batches) = (self.books.clone(), self.batches.downgrade());
        PeerService { books, view, clock, namer: self.namer.clone(), batches }
    }

    /// Sends what there is to tell as soon as there is something, until `stop`; then the rest.
    pub async fn run(self, stop: CancellationToken) {
        let news = self.books.lock().news();
        loop {
            tokio::select! {
                () = stop.cancelled() => return self.flush(),
                () = news.notified() => {}
                () = tokio::time::sleep(COUNT_EVERY) => {}
            }
            self.flush();
            tokio::select! {
                () = stop.cancelled() => return self.flush(),
                () = tokio::time::sleep(BATCH_GAP) => {}
            }
        }
    }

    fn flush(&self) {
        let name = self.namer.name();
        let pending = self.books.lock().take_pending();
        let followers = self.batches.receiver_count();
        self.metrics.followers.set(i64::try_from(followers).unwrap_or(i64::MAX));
        if followers == 0 {
            // Who comes now is told everything that the books hold, and they hold this.
            return;
        }
        // Of a changed secret they are told at once: until then they take our keys for unreadable, or theirs for readable here.
        let is_renamed = self.told_check.swap(name.secret_check, Ordering::Relaxed) != name.secret_check;
        let renamed = is_renamed.then(|| Batch::Changes(nothing_of(name)));
        let batches = match pending {
            Pending::Overflown => vec![Batch::Restart],
            Pending::Changes(changes) => {
                self.metrics.sent.inc_by(changes.len() as u64);
                let reports =
                    changes.iter().filter(|change| matches!(change.what, What::Reported(_))).count();
                let passed_on = ReportLabels { result: "passed_on" };
                self.metrics.reports.get_or_create(&passed_on).inc_by(reports as u64);
                in_batches(name, &changes).into_iter().map(Batch::Changes).collect()
            }
        };
        for batch in renamed.into_iter().chain(batches) {
            // An error says that nobody follows, and then nobody needs it.
            let _nobody = self.batches.send(batch);
        }
    }
}

// === impl Namer ===

impl Namer {
    fn name(&self) -> Name {
        Name { own: self.own, secret_check: self.cached.secret_check() }
    }
}

/// A batch without changes.
fn nothing_of(name: Name) -> LedgerChanges {
    let indexer_id = name.own.get().into();
    LedgerChanges { indexer_id, snapshot: false, changes: Vec::new(), secret_check: name.secret_check }
}

/// Splits changes into batches of the contract's size.
fn in_batches(name: Name, changes: &[Change]) -> Vec<LedgerChanges> {
    let mut batches: Vec<LedgerChanges> = Vec::new();
    let mut keys_left = 0;
    for change in changes {
        let keys = change.expected_keys();
        let has_room = batches.last().is_some_and(|batch| batch.changes.len() < BATCH_CHANGES_MAX);
        if !has_room || keys > keys_left {
            batches.push(nothing_of(name));
            keys_left = BATCH_KEYS_MAX;
        }
        keys_left = keys_left.saturating_sub(keys);
        if let Some(batch) = batches.last_mut() {
            batch.changes.push(convert::to_wire(change));
        }
    }
    batches
}

// === impl PeerService ===

impl PeerService {
    /// Everything held now, then every change, as far as it is for this audience. None: the program is ending.
    fn changes(
        &self,
        audience: Audience,
    ) -> Option<impl Stream<Item = Result<LedgerChanges, Status>> + Send + 'static> {
        let batches = self.batches.upgrade()?;
        let (snapshot, changes, following) = {
            // Under the lock, so that no change falls between the two, and whoever is counted on hears all.
            let mut books = self.books.lock();
            let following = Following::begin(&mut books, &self.books, audience);
            (Snapshot::of(&books, self.namer.name()), batches.subscribe(), following)
        };
        let snapshot = snapshot.batches(self.books.clone(), self.view.clone(), self.clock);
        let changes = stream::unfold(changes, |mut changes| async move {
            let batch = match changes.recv().await {
                Ok(Batch::Changes(batch)) => Ok(batch),
                Ok(Batch::Restart) => Err(follow_again("changes were lost; follow again")),
                Err(RecvError::Lagged(_)) => Err(follow_again("too far behind; follow again")),
                Err(RecvError::Closed) => return None,
            };
            Some((batch, changes))
        });
        let told = snapshot.map(Ok).chain(changes).filter_map(move |batch| {
            let _for_as_long = &following;
            let batch = batch.map(|batch| audience.part_of(batch)).transpose();
            std::future::ready(batch)
        });
        Some(told)
    }
}

#[tonic::async_trait]
impl Peer for PeerService {
    type FollowStream = std::pin::Pin<Box<dyn Stream<Item = Result<LedgerChanges, Status>> + Send + 'static>>;

    async fn follow(&self, request: Request<FollowRequest>) -> Result<Response<Self::FollowStream>, Status> {
        let request = request.into_inner();
        let audience = Audience::of(&request).ok_or_else(invalid_follower)?;
        let followers = self.batches.upgrade().map_or(0, |batches| batches.receiver_count());
        if followers >= FOLLOWERS_MAX {
            return Err(served_at_once(followers));
        }
        tracing::info!(follower = request.follower_id, protocol = request.protocol, "an indexer follows");
        let changes = self.changes(audience).ok_or_else(|| follow_again("this indexer is ending"))?;
        Ok(Response::new(Box::pin(changes)))
    }
}
