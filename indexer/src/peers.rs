//! Several indexers deciding like one: each follows the others' ledgers.
//!
//! In: the books' changes, and the batches of peers. Out: batches to followers, and the books' entries of decisions that
//! peers made. A peer that is gone costs nothing but knowledge: its entries count until their leases end, and decisions
//! go on with what is known here.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use warmpath_proto::v1::peer_server::Peer;
use warmpath_proto::v1::{FollowRequest, LedgerChanges};

mod convert;
mod follow;
pub mod metrics;
mod snapshot;
#[cfg(test)]
mod tests;

pub use follow::Follower;
pub use metrics::PeerMetrics;

use crate::books::{Books, Change, IndexerId, Pending};
use crate::fleet::View;
use crate::rpc::status::follow_again;
use snapshot::Snapshot;

/// How long a change may wait for others to share its batch.
const BATCH_WAIT: Duration = Duration::from_millis(10);
/// Changes in a batch, as in the contract.
const BATCH_CHANGES_MAX: usize = 4096;
/// Batches that a slow follower may be behind before it has to start again.
const BATCHES_BEHIND_MAX: usize = 256;

/// Tells followers what changes here, until it is dropped.
#[derive(Debug)]
pub struct Publisher {
    books: Arc<Mutex<Books>>,
    batches: broadcast::Sender<Batch>,
    metrics: PeerMetrics,
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
    /// Weak, so that every stream ends, with all that was told, when the publisher does.
    batches: broadcast::WeakSender<Batch>,
}

// === impl Publisher ===

impl Publisher {
    pub fn new(books: Arc<Mutex<Books>>, metrics: PeerMetrics) -> Self {
        let (batches, _) = broadcast::channel(BATCHES_BEHIND_MAX);
        Self { books, batches, metrics }
    }

    /// The service through which others follow.
    pub fn service(&self, view: Arc<View>) -> PeerService {
        PeerService { books: self.books.clone(), view, batches: self.batches.downgrade() }
    }

    /// Sends what has gathered, on a beat, until `stop`; then the rest.
    pub async fn run(self, stop: CancellationToken) {
        let mut beats = tokio::time::interval(BATCH_WAIT);
        loop {
            tokio::select! {
                () = stop.cancelled() => return self.flush(),
                _ = beats.tick() => self.flush(),
            }
        }
    }

    fn flush(&self) {
        let (pending, own) = {
            let mut books = self.books.lock();
            (books.take_pending(), books.own())
        };
        let batches = match pending {
            Pending::Overflown => vec![Batch::Restart],
            Pending::Changes(changes) => {
                self.metrics.sent.inc_by(changes.len() as u64);
                in_batches(own, &changes).map(Batch::Changes).collect()
            }
        };
        self.metrics.followers.set(i64::try_from(self.batches.receiver_count()).unwrap_or(i64::MAX));
        for batch in batches {
            // An error says that nobody follows, and then nobody needs it.
            let _nobody = self.batches.send(batch);
        }
    }
}

/// Splits changes into batches of the contract's size.
fn in_batches(own: IndexerId, changes: &[Change]) -> impl Iterator<Item = LedgerChanges> {
    changes.chunks(BATCH_CHANGES_MAX).map(move |chunk| LedgerChanges {
        indexer_id: own.get().into(),
        snapshot: false,
        changes: chunk.iter().map(convert::to_wire).collect(),
    })
}

// === impl PeerService ===

impl PeerService {
    /// Everything held now, then every change. None: the program is ending.
    fn changes(&self) -> Option<impl Stream<Item = Result<LedgerChanges, Status>> + Send + 'static> {
        let batches = self.batches.upgrade()?;
        let (snapshot, changes) = {
            // Under the lock, so that no change falls between the two.
            let books = self.books.lock();
            (Snapshot::of(&books), batches.subscribe())
        };
        let snapshot = snapshot.batches(self.books.clone(), self.view.clone());
        let changes = stream::unfold(changes, |mut changes| async move {
            let batch = match changes.recv().await {
                Ok(Batch::Changes(batch)) => Ok(batch),
                Ok(Batch::Restart) => Err(follow_again("changes were lost; follow again")),
                Err(RecvError::Lagged(_)) => Err(follow_again("too far behind; follow again")),
                Err(RecvError::Closed) => return None,
            };
            Some((batch, changes))
        });
        Some(snapshot.map(Ok).chain(changes))
    }
}

#[tonic::async_trait]
impl Peer for PeerService {
    type FollowStream = std::pin::Pin<Box<dyn Stream<Item = Result<LedgerChanges, Status>> + Send + 'static>>;

    async fn follow(&self, request: Request<FollowRequest>) -> Result<Response<Self::FollowStream>, Status> {
        tracing::info!(follower = request.into_inner().follower_id, "an indexer follows");
        let changes = self.changes().ok_or_else(|| follow_again("this indexer is ending"))?;
        Ok(Response::new(Box::pin(changes)))
    }
}
