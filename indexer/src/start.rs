//! What goes on behind open ports until the program is ready, and the saving after it.
//!
//! ```text
//! ports open ─▶ images from mirror and peers ─▶ index ─▶ streams followed ─▶ read up ─▶ ready
//!               (three quarters of the warm-up)          (until its end)
//! ```
//!
//! Until the images are there no stream is followed, and requests are ranked by load. What has not come by the end of the
//! warm-up is gone without. From then on it is also seen to it that all indexers have one secret ([`Agreement`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use warmpath_kv::index::Reader;
use warmpath_kv::{Index, IndexLimits, KeyHasher};

use crate::agreement::Agreement;
use crate::fleet::View;
use crate::ingest::Ingest;
use crate::lifecycle::{Readiness, ReadyGuard};
use crate::mirror::{self, Keyring, MirrorMetrics, Peers, RedisStore, Saver, Secret, Sources};
use crate::peers::{Followed, PeerMetrics};
use crate::warmup::Warmup;

/// See the module's documentation.
pub struct Start {
    pub sources: Sources<RedisStore>,
    /// Of the warm-up.
    pub patience: Duration,
    pub limits: IndexLimits,
    pub keyring: Keyring,
    pub cached: Reader,
    pub ingest: Arc<Ingest>,
    pub view: Arc<View>,
    /// Sources of endpoints that there are.
    pub listings: usize,
    pub metrics: MirrorMetrics,
    /// Other indexers, and which of them are followed.
    pub peers: Peers,
    pub followed: Followed,
    pub peer_metrics: PeerMetrics,
    /// Where to save, and how often.
    pub saving: Option<(RedisStore, Duration)>,
}

// === impl Start ===

impl Start {
    /// Runs until `stop`. `fleet` is held until it is known which endpoints there are.
    pub async fn run(self, readiness: Readiness, fleet: ReadyGuard, stop: CancellationToken) {
        let end = Instant::now() + self.patience;
        let Self { sources, patience, limits, keyring, cached, ingest, view, listings, metrics, .. } = self;
        let secret = tokio::select! {
            () = stop.cancelled() => return,
            secret = take_up(sources, patience.mul_f64(0.75), limits, &keyring, &ingest, &metrics) => secret,
        };
        let agreement = Agreement {
            peers: self.peers,
            followed: self.followed,
            keyring,
            has_mirror: self.saving.is_some(),
            cached,
            ingest: ingest.clone(),
            limits,
            warm_at: end,
            metrics: self.peer_metrics,
            mirror: metrics.clone(),
        };
        let warmup = Warmup { view, listings, ingest: ingest.clone(), end, mirror: metrics.clone() };
        let saver = async {
            if let Some((store, interval)) = self.saving {
                Saver::new(store, ingest, secret, interval, metrics).run(stop.clone()).await;
            }
        };
        tokio::join!(saver, agreement.run(stop.clone()), warmup.run(readiness, fleet, stop.clone()));
    }
}

/// Puts what others know into the index, and begins to follow the engines. Returns the secret of the block keys.
async fn take_up(
    sources: Sources<RedisStore>,
    patience: Duration,
    limits: IndexLimits,
    keyring: &Keyring,
    ingest: &Ingest,
    metrics: &MirrorMetrics,
) -> Secret {
    let loaded = mirror::gather(sources, keyring, patience, metrics).await;
    let secret = loaded.secret;
    let counted = metrics.clone();
    // A second per some million blocks.
    let restoring = tokio::task::spawn_blocking(move || loaded.restore(limits, &counted));
    let (index, resumable) = restoring.await.unwrap_or_else(|error| {
        tracing::error!(%error, "taking up images broke down, a defect; starting without");
        (Index::new(KeyHasher::new(secret), limits), Vec::new())
    });
    ingest.begin_with(index, resumable);
    secret
}
