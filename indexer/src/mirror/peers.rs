//! What other indexers have: their secret and their live streams, and images of those.
//!
//! Asked at the start, and where their block keys turn out to be of another secret. A peer that does not answer, or is of a
//! release that gives no images, has nothing; one that is starting itself has a secret to begin with, and no images.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures::future::join_all;
use thiserror::Error;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use warmpath_proto::v1::images_client::ImagesClient;
use warmpath_proto::v1::{GetImagesRequest, ImageName, ListImagesRequest, ListImagesResponse};

use super::room::{IMAGE_BYTES_MAX, Room};
use super::secret::{Claim, DatedSecret, Secret};
use super::store::StreamName;
use crate::books::IndexerId;
use crate::config::HostPort;
use crate::resolve::Resolver;

/// Longest time for all to say what they have: they are on the same network.
const LIST_TIMEOUT: Duration = Duration::from_secs(1);
/// Addresses of one peer's name that are asked: a name may stand for all indexers.
const ADDRESSES_MAX: usize = 64;
/// Streams that a peer may name: more than any fleet has.
const STREAMS_MAX: usize = 1 << 16;
/// Bytes on their way: an image is megabytes, and comes in parts.
const WINDOW: u32 = 8 << 20;

/// The other indexers, as configured.
#[derive(Clone, Debug)]
pub struct Peers {
    names: Vec<HostPort>,
    own: IndexerId,
}

/// What one of them has.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    client: ImagesClient<Channel>,
    peer: SocketAddr,
    pub(super) claim: Claim,
    /// With the time at which the engine made its last batch, in microseconds since 1970.
    pub(super) streams: HashMap<StreamName, u64>,
}

/// Why a peer has nothing.
#[derive(Debug, Error)]
enum PeerError {
    #[error("cannot be asked: {0}")]
    Connect(#[from] tonic::transport::Error),
    #[error("{}: {}", .0.code(), .0.message())]
    Status(#[from] tonic::Status),
    #[error("no answer in time")]
    Late,
    #[error("more than {IMAGE_BYTES_MAX} bytes of images in all, or more images than were asked for")]
    TooMuch,
}

// === impl Peers ===

impl Peers {
    pub fn new(names: Vec<HostPort>, own: IndexerId) -> Self {
        Self { names, own }
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// What they have, each of them once, whatever its names.
    pub(super) async fn offers(&self, patience: Duration) -> Vec<Offer> {
        let patience = patience.min(LIST_TIMEOUT);
        let end = Instant::now() + patience;
        let names = self.names.clone().into_iter();
        let addresses = join_all(names.map(|name| addresses(name, patience))).await;
        let asked = addresses.into_iter().flatten().map(|address| async move {
            let left = end.saturating_duration_since(Instant::now());
            let answer = timeout(left, list(address)).await.unwrap_or(Err(PeerError::Late));
            answer.inspect_err(|error| tracing::debug!(peer = %address, %error, "a peer gives no images"))
        });
        let answers = join_all(asked).await.into_iter().flatten();
        let mut offers = HashMap::new();
        for (client, peer, answer) in answers {
            let id = answer.indexer_id;
            if id == u64::from(self.own.get()) {
                continue;
            }
            if let Some(offer) = Offer::of(client, peer, answer) {
                offers.insert(id, offer);
            }
        }
        offers.into_values().collect()
    }
}

async fn addresses(name: HostPort, patience: Duration) -> Vec<SocketAddr> {
    let found = Resolver::system().addresses(name.host(), name.port(), patience).await;
    let mut found = found
        .inspect_err(|error| tracing::debug!(peer = %name, %error, "a peer's name has no addresses"))
        .unwrap_or_default();
    found.truncate(ADDRESSES_MAX);
    found
}

async fn list(
    address: SocketAddr,
) -> Result<(ImagesClient<Channel>, SocketAddr, ListImagesResponse), PeerError> {
    let channel = Endpoint::from_shared(format!("http://{address}"))?
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .tcp_nodelay(true)
        .connect()
        .await?;
    let mut client = ImagesClient::new(channel);
    let answer = client.list(ListImagesRequest {}).await?.into_inner();
    Ok((client, address, answer))
}

// === impl Offer ===

impl Offer {
    /// None: it does not tell a usable secret.
    fn of(client: ImagesClient<Channel>, peer: SocketAddr, answer: ListImagesResponse) -> Option<Self> {
        let has_begun = !answer.secret.is_empty();
        let secret = if has_begun { answer.secret } else { answer.candidate };
        let dated = DatedSecret { made_us: answer.secret_made_us, secret: Secret::try_from(secret).ok()? };
        let streams = answer.images.into_iter().take(STREAMS_MAX);
        let streams = streams
            .map(|entry| (StreamName { endpoint: entry.endpoint, rank: entry.rank }, entry.last_made_us));
        Some(Self { client, peer, claim: Claim { dated, has_begun }, streams: streams.collect() })
    }

    /// Images of these streams: those that have come whole by `end`.
    pub(super) async fn images(mut self, streams: Vec<StreamName>, end: Instant, room: &Room) -> Vec<Bytes> {
        let wanted = streams.len();
        let streams = streams.into_iter();
        let streams = streams.map(|name| ImageName { endpoint: name.endpoint, rank: name.rank });
        let request = GetImagesRequest { streams: streams.collect() };
        let mut images = Vec::new();
        let left = end.saturating_duration_since(Instant::now());
        let received = timeout(left, self.receive(request, wanted, (room, &mut images))).await;
        if let Err(error) = received.unwrap_or(Err(PeerError::Late)) {
            tracing::warn!(peer = %self.peer, %error, wanted, came = images.len(), "a peer gave not all images");
        }
        images
    }

    async fn receive(
        &mut self,
        request: GetImagesRequest,
        wanted: usize,
        (room, images): (&Room, &mut Vec<Bytes>),
    ) -> Result<(), PeerError> {
        let mut parts = self.client.get(request).await?.into_inner();
        let mut image = BytesMut::new();
        while let Some(part) = parts.message().await? {
            if images.len() >= wanted || !room.take(part.bytes.len()) {
                return Err(PeerError::TooMuch);
            }
            image.extend_from_slice(&part.bytes);
            if part.is_last {
                images.push(image.split().freeze());
            }
        }
        Ok(())
    }
}
