//! Gives images of the live streams to indexers that start.
//!
//! One image at a time is made for each asker, and the next one when the last has been sent: what a slow one holds up is
//! itself. Few are served at once, each for a limited time.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt};
use parking_lot::RwLock;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};
use warmpath_kv::{Index, StreamId, Trust};
use warmpath_proto::v1::images_server::Images;
use warmpath_proto::v1::{GetImagesRequest, ImageEntry, ImagePart, ListImagesRequest, ListImagesResponse};

use super::format;
use super::metrics::MirrorMetrics;
use super::secret::{DatedSecret, Keyring};
use super::store::StreamName;
use crate::books::IndexerId;
use crate::ingest::{Ingest, StreamStatus};
use crate::rpc::status;

/// Askers at the same time: each holds an image, some megabytes, and takes a core while one is made.
const SERVED_MAX: usize = 2;
/// Longest time for one asker: more than any warm-up should take.
const SERVE_MAX: Duration = Duration::from_secs(60);
/// Bytes of a part, as in the contract.
pub(super) const PART_BYTES_MAX: usize = 256 << 10;

/// Serves `Images`.
#[derive(Clone, Debug)]
pub struct ImageService {
    own: IndexerId,
    ingest: Arc<Ingest>,
    index: Arc<RwLock<Index>>,
    keyring: Keyring,
    turns: Arc<Semaphore>,
    metrics: MirrorMetrics,
}

// === impl ImageService ===

impl ImageService {
    pub fn new(
        own: IndexerId,
        ingest: Arc<Ingest>,
        index: Arc<RwLock<Index>>,
        keyring: Keyring,
        metrics: MirrorMetrics,
    ) -> Self {
        Self { own, ingest, index, keyring, turns: Arc::new(Semaphore::new(SERVED_MAX)), metrics }
    }

    fn live(&self) -> impl Iterator<Item = StreamStatus> {
        let streams = self.ingest.status().into_iter();
        streams.filter(|stream| stream.trust == Trust::Live && stream.last_seq.is_some())
    }

    /// The image of a stream as bytes; none where it is not live any more.
    async fn image(self, name: StreamName, id: StreamId) -> Option<Bytes> {
        let taken = self.ingest.image(id).await?;
        let secret = self.index.read().secret();
        let encoded = tokio::task::spawn_blocking(move || format::encode(&name, taken, secret)).await;
        let image = encoded
            .inspect_err(
                |error| tracing::error!(stream = %id, %error, "making an image broke down, a defect"),
            )
            .ok()?;
        self.metrics.given.inc();
        Some(Bytes::from(image))
    }
}

#[tonic::async_trait]
impl Images for ImageService {
    type GetStream = Pin<Box<dyn Stream<Item = Result<ImagePart, Status>> + Send + 'static>>;

    async fn list(
        &self,
        _request: Request<ListImagesRequest>,
    ) -> Result<Response<ListImagesResponse>, Status> {
        // First, as the secret is changed while streams are held only.
        let is_held = self.ingest.is_held();
        let DatedSecret { made_us, secret } = self.keyring.get();
        let indexer_id = self.own.get().into();
        if is_held {
            return Ok(Response::new(ListImagesResponse {
                indexer_id,
                secret_made_us: made_us,
                candidate: secret.to_vec(),
                ..ListImagesResponse::default()
            }));
        }
        let images = self.live().map(|stream| ImageEntry {
            endpoint: stream.endpoint,
            rank: stream.rank,
            last_made_us: stream.last_made_us,
        });
        Ok(Response::new(ListImagesResponse {
            indexer_id,
            secret: secret.to_vec(),
            images: images.collect(),
            secret_made_us: made_us,
            candidate: Vec::new(),
        }))
    }

    async fn get(&self, request: Request<GetImagesRequest>) -> Result<Response<Self::GetStream>, Status> {
        let turn = self.turns.clone().try_acquire_owned();
        let turn = turn.map_err(|_| status::served_at_once(SERVED_MAX))?;
        let mut live: HashMap<StreamName, StreamId> = self
            .live()
            .map(|stream| (StreamName { endpoint: stream.endpoint, rank: stream.rank }, stream.id))
            .collect();
        let asked = request.into_inner().streams.into_iter();
        let asked = asked.map(|stream| StreamName { endpoint: stream.endpoint, rank: stream.rank });
        // Each once, however often it is named.
        let wanted: Vec<_> = asked.filter_map(|name| live.remove_entry(&name)).collect();
        let service = self.clone();
        let images = stream::iter(wanted).filter_map(move |(name, id)| service.clone().image(name, id));
        let parts = images.flat_map(|image| stream::iter(in_parts(image))).map(Ok);
        // The turn ends with the stream, however that ends.
        let parts = parts.take_until(tokio::time::sleep(SERVE_MAX)).inspect(move |_| {
            let _held = &turn;
        });
        Ok(Response::new(Box::pin(parts)))
    }
}

/// At least one part, even of nothing.
fn in_parts(image: Bytes) -> impl Iterator<Item = ImagePart> {
    let count = image.len().div_ceil(PART_BYTES_MAX).max(1);
    (1..=count).map(move |number| {
        let end = image.len().min(number * PART_BYTES_MAX);
        let part = image.slice((number - 1) * PART_BYTES_MAX..end);
        ImagePart { bytes: part.to_vec(), is_last: number == count }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_cut_into_parts_of_the_contracts_size() {
        for len in [0, 1, PART_BYTES_MAX, PART_BYTES_MAX + 1, 3 * PART_BYTES_MAX] {
            let image = Bytes::from(vec![7; len]);
            let parts: Vec<ImagePart> = in_parts(image.clone()).collect();
            assert!(parts.iter().all(|part| part.bytes.len() <= PART_BYTES_MAX));
            assert_eq!(parts.iter().filter(|part| part.is_last).count(), 1);
            assert!(parts.last().unwrap().is_last);
            assert_eq!(parts.iter().flat_map(|part| part.bytes.clone()).collect::<Vec<_>>(), image);
        }
    }
}
