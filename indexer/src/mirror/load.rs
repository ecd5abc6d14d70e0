//! At the start: what a store has, as far as it can be used.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::timeout;
use warmpath_kv::index::image::Restored;
use warmpath_kv::{Index, IndexLimits, KeyHasher, StreamId};

use super::format::{self, Saved, secret_check};
use super::metrics::{MirrorMetrics, Restore};
use super::store::{Secret, Store, StoreError};
use crate::ingest::Resumable;

/// What was found.
#[derive(Debug)]
pub struct Loaded {
    /// To make block keys with.
    pub secret: Secret,
    /// Readable, and with this secret.
    pub saved: Vec<Saved>,
}

// === impl Loaded ===

impl Loaded {
    /// Of a program without a mirror.
    pub fn nothing(own: Secret) -> Self {
        Self { secret: own, saved: Vec::new() }
    }

    /// An index with what was found, and how its streams go on.
    pub fn restore(self, limits: IndexLimits, metrics: &MirrorMetrics) -> (Index, Vec<Resumable>) {
        let Self { secret, saved } = self;
        let (images, mut resumable): (Vec<_>, Vec<_>) = (0..)
            .zip(saved)
            .map(|(number, saved)| {
                // The fleet counts its streams from 0.
                let id = StreamId(u32::MAX - number);
                let resumable = Resumable {
                    id,
                    endpoint: saved.name.endpoint,
                    rank: saved.name.rank,
                    model: saved.image.model.to_string(),
                    seq: saved.last_seq,
                    digest: saved.last_digest,
                };
                ((id, saved.image), resumable)
            })
            .unzip();
        let Restored { index, refused } = Index::restore(secret, &images, limits);
        for (at, error) in &refused {
            let name = resumable.get(*at).map(|stream| format!("{}/{}", stream.endpoint, stream.rank));
            tracing::warn!(stream = name, %error, "an image in the mirror is left alone");
        }
        resumable.retain(|stream| index.stream_stats(stream.id).is_some());
        metrics.count_restored(Restore::Refused, refused.len());
        metrics.count_restored(Restore::Restored, resumable.len());
        (index, resumable)
    }
}

/// Asks the store, for at most `patience`. Whatever happens the program can start: without a store's answer, with `own`
/// as the secret and with nothing saved.
pub async fn load(store: &impl Store, own: Secret, patience: Duration, metrics: &MirrorMetrics) -> Loaded {
    let end = Instant::now() + patience;
    let secret = match within(end, store.agree(own)).await {
        Ok(agreed) => agreed.secret,
        Err(error) => {
            tracing::warn!(%error, "the mirror gave nothing; starting cold");
            return Loaded::nothing(own);
        }
    };
    let images = match within(end, store.images()).await {
        Ok(images) => images,
        // With the secret that all share, so that this one can save when the mirror can be used again.
        Err(error) => {
            tracing::warn!(%error, "the mirror gave no images; starting cold");
            return Loaded::nothing(secret);
        }
    };
    // Reading them takes a second per some million blocks, and would hold up the runtime.
    let (count, bytes) = (images.len(), images.iter().map(Bytes::len).sum::<usize>());
    let read = tokio::task::spawn_blocking(move || read_all(&images, secret)).await;
    let (saved, refused) = read.unwrap_or_default();
    for (restore, why) in &refused {
        metrics.count_restored(*restore, 1);
        tracing::warn!(%why, "an image in the mirror is left alone");
    }
    tracing::info!(images = count, bytes, usable = saved.len(), "the mirror answered");
    Loaded { secret, saved }
}

/// What is asked, unless it is too late for it.
async fn within<T>(
    end: Instant,
    asked: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let patience = end.saturating_duration_since(Instant::now());
    timeout(patience, asked).await.unwrap_or(Err(StoreError::Late(patience)))
}

fn read_all(images: &[Bytes], secret: Secret) -> (Vec<Saved>, Vec<(Restore, String)>) {
    let check = secret_check(&KeyHasher::new(secret));
    let (mut saved, mut refused) = (Vec::new(), Vec::new());
    for image in images {
        match format::decode(image) {
            Ok(read) if read.secret_check == check => saved.push(read),
            Ok(read) => refused.push((Restore::Foreign, format!("{} is of another secret", read.name))),
            Err(error) => refused.push((Restore::Unreadable, error.to_string())),
        }
    }
    (saved, refused)
}
