//! At the start: what a store has, as far as it can be used.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use tokio::time::timeout;
use warmpath_kv::index::image::Restored;
use warmpath_kv::{Index, IndexLimits, KeyHasher, StreamId};

use super::format::{self, Saved, secret_check};
use super::metrics::{MirrorMetrics, Restore};
use super::room::Room;
use super::secret::Secret;
use super::store::{Store, StoreError};
use crate::ingest::Resumable;

/// Images asked for at once: some megabytes each, and a round trip for all of them together.
const IMAGES_AT_ONCE: usize = 4;
/// Images in a row that cannot be had, after which no more are asked for: it is not them, then.
const FAILURES_MAX: usize = 3;

/// What was found.
#[derive(Debug)]
pub struct Loaded {
    /// To make block keys with.
    pub secret: Secret,
    /// Readable, and with this secret.
    pub saved: Vec<Saved>,
}

/// Images that are not used, by what is wrong with them; the log gets one line for all.
#[derive(Debug, Default)]
pub(super) struct LeftAlone {
    images: Vec<(Restore, String)>,
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
                    made_us: saved.last_made_us,
                };
                ((id, saved.image), resumable)
            })
            .unzip();
        let Restored { index, refused } = Index::restore(secret, &images, limits);
        let mut left_alone = LeftAlone::default();
        for (at, error) in &refused {
            let name = resumable.get(*at).map(|stream| format!("{}/{}", stream.endpoint, stream.rank));
            left_alone.add(Restore::Refused, format!("{}: {error}", name.unwrap_or_default()));
        }
        left_alone.tell(metrics);
        resumable.retain(|stream| index.stream_stats(stream.id).is_some());
        metrics.count_restored(Restore::Restored, resumable.len());
        (index, resumable)
    }
}

// === impl LeftAlone ===

impl LeftAlone {
    pub(super) fn add(&mut self, restore: Restore, why: String) {
        self.images.push((restore, why));
    }

    pub(super) fn tell(&self, metrics: &MirrorMetrics) {
        for (restore, _) in &self.images {
            metrics.count_restored(*restore, 1);
        }
        if let Some((_, why)) = self.images.first() {
            tracing::warn!(images = self.images.len(), first = why, "images are left alone");
        }
    }
}

/// Asks the store, for at most `patience`. Whatever happens the program can start: without a store's answer, with `own`
/// as the secret and with nothing saved; with an answer that breaks off, with what came before.
pub async fn load(store: &impl Store, own: Secret, patience: Duration, metrics: &MirrorMetrics) -> Loaded {
    load_into(&Room::default(), store, own, patience, metrics).await.0
}

/// The same, for as much as there is `room`, with the reason where the store gave nothing.
pub(super) async fn load_into(
    room: &Room,
    store: &impl Store,
    own: Secret,
    patience: Duration,
    metrics: &MirrorMetrics,
) -> (Loaded, Option<&'static str>) {
    let end = Instant::now() + patience;
    let secret = match within(end, agreed(store, own)).await {
        Ok(secret) => secret,
        Err(error) => {
            metrics.count_error(error.reason());
            tracing::warn!(%error, "the mirror gave nothing");
            return (Loaded::nothing(own), Some(error.reason()));
        }
    };
    let names = match within(end, store.names()).await {
        Ok(names) => names,
        // With the secret that all share, so that this one can save when the mirror can be used again.
        Err(error) => {
            metrics.count_error(error.reason());
            tracing::warn!(%error, "the mirror gave no images");
            return (Loaded::nothing(secret), Some(error.reason()));
        }
    };
    let mut left_alone = LeftAlone::default();
    let images = images((store, room), names, end, &mut left_alone, metrics).await;
    let (count, bytes) = (images.len(), images.iter().map(Bytes::len).sum::<usize>());
    let saved = read_all(images, secret, &mut left_alone).await;
    left_alone.tell(metrics);
    tracing::info!(images = count, bytes, usable = saved.len(), "the mirror answered");
    (Loaded { secret, saved }, None)
}

/// The secret of the store. One that takes nothing, for want of memory or of room on its disk or because it is a replica, may
/// have one, and images.
async fn agreed(store: &impl Store, own: Secret) -> Result<Secret, StoreError> {
    match store.agree(own).await {
        Ok(agreed) => Ok(agreed.secret),
        Err(error) if error.is_of_writing() => store.secret().await?.ok_or(error),
        Err(error) => Err(error),
    }
}

/// What is asked, unless it is too late for it.
async fn within<T>(
    end: Instant,
    asked: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let patience = end.saturating_duration_since(Instant::now());
    timeout(patience, asked).await.unwrap_or(Err(StoreError::Late(patience)))
}

/// Those that can be had before `end`, those saved last first.
async fn images(
    (store, room): (&impl Store, &Room),
    names: Vec<String>,
    end: Instant,
    left_alone: &mut LeftAlone,
    metrics: &MirrorMetrics,
) -> Vec<Bytes> {
    let asked = names.into_iter().map(|name| async move {
        let image = within(end, store.image(&name, room)).await;
        (name, image)
    });
    let mut asked = stream::iter(asked).buffered(IMAGES_AT_ONCE);
    let (mut images, mut failures) = (Vec::new(), 0);
    while let Some((name, image)) = asked.next().await {
        match image {
            Ok(Some(image)) => {
                failures = 0;
                images.push(image);
            }
            Ok(None) => {}
            // Smaller ones may have room yet.
            Err(error @ StoreError::TooLarge { .. }) => {
                failures = 0;
                left_alone.add(Restore::Refused, format!("{name}: {error}"));
            }
            Err(error) => {
                metrics.count_error(error.reason());
                left_alone.add(Restore::Unreadable, format!("{name}: {error}"));
                failures += 1;
                if failures == FAILURES_MAX {
                    break;
                }
            }
        }
    }
    images
}

/// Those that can be read and are of this secret. Reading takes a second per some million blocks, and would hold up the
/// runtime.
pub(super) async fn read_all(images: Vec<Bytes>, secret: Secret, left_alone: &mut LeftAlone) -> Vec<Saved> {
    let read = tokio::task::spawn_blocking(move || {
        let check = secret_check(&KeyHasher::new(secret));
        let (mut saved, mut refused) = (Vec::new(), Vec::new());
        for image in images {
            match format::decode(&image) {
                Ok(read) if read.secret_check == check => saved.push(read),
                Ok(read) => refused.push((Restore::Foreign, format!("{}: of another secret", read.name))),
                Err(error) => refused.push((Restore::Unreadable, error.to_string())),
            }
        }
        (saved, refused)
    });
    let (saved, refused) = read
        .await
        .inspect_err(|error| tracing::error!(%error, "reading images broke down, a defect; starting without"))
        .unwrap_or_default();
    left_alone.images.extend(refused);
    saved
}
