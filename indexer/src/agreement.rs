//! One secret for the block keys of all indexers, also where they began with several.
//!
//! Those that start beside each other begin with one ([`mirror::gather`](crate::mirror::gather)). Others could not see each other
//! then: a resolver names an indexer only when it is ready, a network parts, a peer stands still. Each batch that a peer tells has
//! a check of its secret. Where that is not ours, the peers are asked for their secrets, and the oldest counts: whoever has a
//! younger one begins anew with the other, with images from those that have it.
//!
//! ```text
//! a peer's check is another one ─▶ ask all ─▶ an older secret ─▶ images ─▶ streams held ─▶ index replaced ─▶ streams followed anew
//!                                     └─▶ none: it is theirs to yield
//! ```
//!
//! Each step leads to an older secret, so it ends, and all who can ask each other end with the same one. With a mirror nobody
//! yields here: its secret is what all who use it have.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use warmpath_kv::IndexLimits;
use warmpath_kv::index::Reader;

use crate::ingest::{Ingest, IngestError};
use crate::logs::News;
use crate::mirror::{self, DatedSecret, Keyring, Loaded, MirrorMetrics, Peers};
use crate::peers::{Followed, PeerMetrics};

/// How often it is looked whether a peer has another secret.
const LOOK: Duration = Duration::from_millis(200);
/// Between two times of asking, doubled up to the longest where no peer has an older secret.
const ASK_FIRST: Duration = Duration::from_millis(200);
const ASK_LONGEST: Duration = Duration::from_secs(30);
/// For all that is asked of peers. Nobody waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
/// Secrets that differ for so long are worth a warning: those who can, have come to one by then.
const WARN_AFTER: Duration = Duration::from_secs(15);

/// See the module's documentation.
pub struct Agreement {
    pub peers: Peers,
    pub followed: Followed,
    pub keyring: Keyring,
    /// Of a mirror, which keeps the secret.
    pub has_mirror: bool,
    pub cached: Reader,
    pub ingest: Arc<Ingest>,
    pub limits: IndexLimits,
    /// When all endpoints are known for which a peer may have images.
    pub warm_at: tokio::time::Instant,
    pub metrics: PeerMetrics,
    pub mirror: MirrorMetrics,
}

/// What is known of peers with other secrets.
#[derive(Debug, Default)]
struct Dispute {
    /// Since when there are some.
    since: Option<Instant>,
    /// Not before; then not before so long after that.
    ask_at: Option<Instant>,
    pause: Duration,
}

// === impl Agreement ===

impl Agreement {
    /// Runs until `stop`, of an indexer that is past its start.
    pub async fn run(self, stop: CancellationToken) {
        let work = async {
            let (mut dispute, mut news) = (Dispute::default(), News::default());
            loop {
                self.look(&mut dispute, &mut news).await;
                sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    async fn look(&self, dispute: &mut Dispute, news: &mut News) {
        let others = self.followed.with_other_keys(self.cached.secret_check());
        self.metrics.other_keys.set(i64::try_from(others).unwrap_or(i64::MAX));
        if dispute.note(others > 0, Instant::now()) && !self.has_mirror {
            match self.yield_to_older().await {
                Ok(true) => *dispute = Dispute::default(),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "an older secret of a peer cannot be taken"),
            }
        }
        if others == 0 {
            news.clear();
        } else if dispute.lasts(Instant::now()) && news.is_news("keys", Instant::now()) {
            tracing::warn!(
                peers = others,
                "block keys of peers are of another secret, so prompts that are new to all are computed more than once: give \
                 all indexers the same mirror, or none; list them in each other's `peers`; and restart those of an older \
                 release, one after the other"
            );
        }
    }

    /// Begins anew with the oldest secret that a peer has, if that is older than ours. Whether it did.
    async fn yield_to_older(&self) -> Result<bool, IngestError> {
        let own = self.keyring.get();
        let Some((dated, loaded)) = mirror::gather_from(&self.peers, own, PATIENCE, &self.mirror).await
        else {
            return Ok(false);
        };
        self.begin_anew(dated, loaded).await?;
        self.metrics.secrets_taken.inc();
        Ok(true)
    }

    async fn begin_anew(&self, dated: DatedSecret, loaded: Loaded) -> Result<(), IngestError> {
        let (limits, counted, images) = (self.limits, self.mirror.clone(), loaded.saved.len());
        let restoring = tokio::task::spawn_blocking(move || loaded.restore(limits, &counted));
        let Ok((index, resumable)) = restoring.await else {
            tracing::error!("taking up images broke down, a defect; block keys stay as they are");
            return Ok(());
        };
        self.ingest.hold().await?;
        self.keyring.set(dated);
        self.ingest.begin_with(index, resumable);
        if tokio::time::Instant::now() >= self.warm_at {
            self.ingest.forget_resumable();
        }
        tracing::info!(images, "a peer has an older secret of block keys; the index is made anew with it");
        Ok(())
    }
}

// === impl Dispute ===

impl Dispute {
    /// Whether it is time to ask.
    fn note(&mut self, is_one: bool, now: Instant) -> bool {
        if !is_one {
            *self = Self::default();
            return false;
        }
        self.since.get_or_insert(now);
        if self.ask_at.is_some_and(|at| now < at) {
            return false;
        }
        self.pause = (self.pause * 2).clamp(ASK_FIRST, ASK_LONGEST);
        self.ask_at = Some(now + self.pause);
        true
    }

    fn lasts(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) >= WARN_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_asked_at_once_then_ever_more_seldom_for_as_long_as_they_differ() {
        let (begun, mut dispute) = (Instant::now(), Dispute::default());
        let mut asked = Vec::new();
        for beat in 0..600 {
            let now = begun + LOOK * beat;
            if dispute.note(true, now) {
                asked.push((now - begun).as_millis());
            }
            assert_eq!(dispute.lasts(now), now - begun >= WARN_AFTER);
        }
        assert_eq!(asked[..5], [0, 200, 600, 1400, 3000]);
        let pauses: Vec<_> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.is_sorted() && *pauses.last().unwrap() == ASK_LONGEST.as_millis(), "{pauses:?}");
        let later = begun + LOOK * 600;
        assert!(!dispute.note(false, later) && !dispute.lasts(later + WARN_AFTER));
        assert!(dispute.note(true, later), "another one");
    }
}
