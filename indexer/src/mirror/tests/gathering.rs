//! Images from peers, beside a store or without one, over real connections.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use warmpath_kv::{Index, IndexLimits, KeyHasher};
use warmpath_proto::v1::images_server::{Images, ImagesServer};
use warmpath_proto::v1::{GetImagesRequest, ImageEntry, ImagePart, ListImagesRequest, ListImagesResponse};

use super::*;
use crate::books::IndexerId;
use crate::clock::Clock;
use crate::ingest::{self, IngestConfig};
use crate::lifecycle::Readiness;

/// A peer that has what it is told to have.
#[derive(Clone, Default)]
struct Scripted {
    id: u64,
    secret: Secret,
    /// When it made it; 0, as of a release that does not say.
    made_us: u64,
    is_starting: bool,
    /// With the time that it tells of each.
    images: Vec<(Saved, u64)>,
    /// Parts after which it says nothing more, and keeps the connection.
    hangs_after: Option<usize>,
}

type Parts = std::pin::Pin<Box<dyn futures::Stream<Item = Result<ImagePart, tonic::Status>> + Send>>;

#[tonic::async_trait]
impl Images for Scripted {
    type GetStream = Parts;

    async fn list(
        &self,
        _request: tonic::Request<ListImagesRequest>,
    ) -> Result<tonic::Response<ListImagesResponse>, tonic::Status> {
        let images = self.images.iter().map(|(saved, last_made_us)| ImageEntry {
            endpoint: saved.name.endpoint.clone(),
            rank: saved.name.rank,
            last_made_us: *last_made_us,
        });
        let (begun, candidate) =
            if self.is_starting { (&[][..], &self.secret[..]) } else { (&self.secret[..], &[][..]) };
        Ok(tonic::Response::new(ListImagesResponse {
            indexer_id: self.id,
            secret: begun.to_vec(),
            images: images.collect(),
            secret_made_us: self.made_us,
            candidate: candidate.to_vec(),
        }))
    }

    async fn get(
        &self,
        request: tonic::Request<GetImagesRequest>,
    ) -> Result<tonic::Response<Parts>, tonic::Status> {
        use futures::StreamExt as _;
        let asked = request.into_inner().streams;
        let wanted = self.images.iter().filter(|(saved, _)| {
            asked.iter().any(|name| name.endpoint == saved.name.endpoint && name.rank == saved.name.rank)
        });
        let parts: Vec<_> = wanted
            .flat_map(|(saved, _)| {
                let bytes = format::encoded(saved.clone());
                let half = bytes.len() / 2;
                let part = |bytes: &[u8], is_last| Ok(ImagePart { bytes: bytes.to_vec(), is_last });
                [part(&bytes[..half], false), part(&bytes[half..], true)]
            })
            .collect();
        let hangs = self.hangs_after;
        let parts = futures::stream::iter(parts).take(hangs.unwrap_or(usize::MAX));
        let rest = futures::stream::pending().take(usize::from(hangs.is_some()));
        Ok(tonic::Response::new(Box::pin(parts.chain(rest))))
    }
}

/// Serves until the token is cancelled; the address.
async fn serve(images: impl Images, stop: &CancellationToken) -> String {
    serve_routes(Routes::new(ImagesServer::new(images)), stop).await
}

async fn serve_routes(routes: Routes, stop: &CancellationToken) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = Server::builder().add_routes(routes);
    let stop = stop.clone().cancelled_owned();
    tokio::spawn(server.serve_with_incoming_shutdown(TcpIncoming::from(listener), stop));
    address
}

fn image(rank: u32, secret: Secret, made: u64) -> Saved {
    let mut saved = format::saved();
    saved.name = name(rank);
    saved.secret_check = super::super::format::secret_check(&KeyHasher::new(secret));
    saved.last_made_us = made;
    saved
}

async fn gathered(
    store: Option<MemoryStore>,
    peers: &[String],
    patience: Duration,
) -> (Loaded, MirrorMetrics) {
    let names = peers.iter().map(|peer| peer.parse().unwrap()).collect();
    let readiness = Readiness::new();
    let sources = Sources {
        store: store.map(|store| (store, readiness.wait_for("mirror"))),
        peers: Some((Peers::new(names, IndexerId::new(7).unwrap()), readiness.wait_for("images of peers"))),
    };
    let metrics = MirrorMetrics::default();
    let keyring = Keyring::new(DatedSecret { made_us: 900, secret: [9; 16] });
    let mut loaded = gather(sources, &keyring, patience, &metrics).await;
    assert_eq!(keyring.get().secret, loaded.secret);
    assert!(readiness.pending().is_empty(), "every guard is gone");
    loaded.saved.sort_unstable_by_key(|saved| saved.name.clone());
    (loaded, metrics)
}

fn made(loaded: &Loaded) -> Vec<(u32, u64)> {
    loaded.saved.iter().map(|saved| (saved.name.rank, saved.last_made_us)).collect()
}

#[tokio::test]
async fn of_store_and_peers_the_fresher_image_wins_for_each_stream() {
    let stop = CancellationToken::new();
    let secret = [1; 16];
    let of = |rank, made| (image(rank, secret, made), made);
    let one =
        Scripted { id: 1, secret, images: vec![of(0, 10), of(1, 10), of(2, 10)], ..Scripted::default() };
    let other = Scripted { id: 2, secret, images: vec![of(1, 20), of(3, 5)], ..Scripted::default() };
    let foreign =
        Scripted { id: 3, secret: [2; 16], images: vec![(image(4, [2; 16], 99), 99)], ..Scripted::default() };
    // It is in its own list, under its own id.
    let itself =
        Scripted { id: 7, secret: [3; 16], images: vec![(image(5, [3; 16], 99), 99)], ..Scripted::default() };
    let mut peers = Vec::new();
    for peer in [one.clone(), one, other, foreign, itself] {
        peers.push(serve(peer, &stop).await);
    }
    let (loaded, metrics) = gathered(None, &peers, LONG).await;
    assert_eq!(loaded.secret, secret, "of one age the smaller");
    assert_eq!(made(&loaded), [(0, 10), (1, 20), (2, 10), (3, 5)]);
    assert_eq!(metrics.taken.get(), 4);

    let store = MemoryStore::new(LONG);
    store.agree(secret).await.unwrap();
    for (rank, made) in [(0, 11), (1, 19), (6, 1)] {
        store.save(&name(rank), format::encoded(image(rank, secret, made)).into()).await.unwrap();
    }
    let (loaded, metrics) = gathered(Some(store), &peers, LONG).await;
    assert_eq!(made(&loaded), [(0, 11), (1, 20), (2, 10), (3, 5), (6, 1)]);
    assert_eq!(metrics.taken.get(), 3, "what the store has fresher is not asked for");

    let store = MemoryStore::new(LONG);
    store.agree([2; 16]).await.unwrap();
    let (loaded, _) = gathered(Some(store), &peers, LONG).await;
    assert_eq!((loaded.secret, made(&loaded)), ([2; 16], vec![(4, 99)]), "a store's secret counts");

    let wiped = MemoryStore::new(LONG);
    let (loaded, _) = gathered(Some(wiped.clone()), &peers, LONG).await;
    assert_eq!(loaded.secret, secret);
    assert_eq!(wiped.agree([5; 16]).await.unwrap().secret, secret, "one that was wiped gets the peers' back");
    stop.cancel();
}

#[tokio::test]
async fn peers_that_are_gone_hang_or_lie_cost_bounded_time_and_nothing_else() {
    let stop = CancellationToken::new();
    let secret = [1; 16];
    let of = |rank| (image(rank, secret, 1), 1);
    let hanging =
        Scripted { id: 1, secret, images: vec![of(0), of(1)], hangs_after: Some(3), ..Scripted::default() };
    let mut damaged = image(2, secret, 1);
    damaged.image.lengths.push(u32::MAX);
    let mut twice = of(3);
    twice.1 = 2;
    let lying = Scripted { id: 2, secret, images: vec![(damaged, 1), of(3), twice], ..Scripted::default() };
    // Accepts, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peers = [
        serve(hanging, &stop).await,
        serve(lying, &stop).await,
        silent.local_addr().unwrap().to_string(),
        // Of a release that gives no images.
        serve_routes(Routes::default(), &stop).await,
        "127.0.0.1:1".to_owned(),
        "no-such-name.invalid:1".to_owned(),
    ];
    let begun = Instant::now();
    let (loaded, metrics) = gathered(None, &peers, Duration::from_secs(3)).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let ranks: Vec<u32> = made(&loaded).into_iter().map(|(rank, _)| rank).collect();
    assert!(ranks.contains(&0) && !ranks.contains(&1), "what came whole is used: {ranks:?}");
    let (index, resumable) = loaded.restore(IndexLimits::default(), &metrics);
    assert!(resumable.iter().all(|stream| stream.rank != 2), "what contradicts itself is left alone");
    assert_eq!(index.stats().streams, resumable.len());
    stop.cancel();
}

fn starting(made_us: u64, secret: u8) -> Scripted {
    Scripted { id: secret.into(), secret: [secret; 16], made_us, is_starting: true, ..Scripted::default() }
}

#[tokio::test]
async fn of_those_that_start_together_the_oldest_secret_is_taken_and_of_those_that_have_begun_before_all() {
    let stop = CancellationToken::new();
    let (younger, older, oldest) = (starting(901, 1), starting(890, 2), starting(880, 3));
    let begun = Scripted { is_starting: false, ..starting(950, 4) };
    let mut peers = Vec::new();
    for (peer, secret) in [(younger, 9), (older, 2), (oldest, 3), (begun, 4)] {
        peers.push(serve(peer, &stop).await);
        let (loaded, metrics) = gathered(None, &peers, LONG).await;
        assert_eq!((loaded.secret, metrics.taken.get()), ([secret; 16], 0));
    }
    let store = MemoryStore::new(LONG);
    store.agree([5; 16]).await.unwrap();
    assert_eq!(gathered(Some(store), &peers, LONG).await.0.secret, [5; 16], "a store's secret counts");
    stop.cancel();
}

#[tokio::test]
async fn who_has_begun_takes_an_older_secret_with_its_images_and_no_younger_one() {
    let stop = CancellationToken::new();
    let of = |secret: u8, made_us| Scripted {
        images: vec![(image(secret.into(), [secret; 16], 1), 1)],
        is_starting: false,
        ..starting(made_us, secret)
    };
    let mut names = Vec::new();
    for peer in [of(1, 20), of(2, 10), starting(1, 3)] {
        names.push(serve(peer, &stop).await.parse().unwrap());
    }
    let peers = Peers::new(names, IndexerId::new(7).unwrap());
    let metrics = MirrorMetrics::default();
    let own = |made_us, secret: u8| DatedSecret { made_us, secret: [secret; 16] };
    let (taken, loaded) = gather_from(&peers, own(15, 9), LONG, &metrics).await.unwrap();
    assert_eq!((taken, loaded.secret), (own(10, 2), [2; 16]));
    assert_eq!(loaded.saved.iter().map(|saved| saved.name.rank).collect::<Vec<_>>(), [2]);
    for own in [own(9, 9), own(10, 2), DatedSecret::of_mirror([9; 16])] {
        assert!(gather_from(&peers, own, LONG, &metrics).await.is_none(), "{own:?}");
    }
    stop.cancel();
}

#[tokio::test]
async fn who_starts_itself_gives_no_images_and_the_secret_that_it_will_begin_with() {
    let stop = CancellationToken::new();
    let index = Arc::new(RwLock::new(Index::new(KeyHasher::new([1; 16]), IndexLimits::default())));
    let ingest = ingest::start_held(IngestConfig::default(), index.clone(), Clock::start()).unwrap();
    let ingest = Arc::new(ingest);
    let (id, dated) = (IndexerId::new(1).unwrap(), DatedSecret { made_us: 800, secret: [1; 16] });
    let keyring = Keyring::new(dated);
    let service = ImageService::new(id, ingest.clone(), index, keyring.clone(), MirrorMetrics::default());
    let told = service.list(tonic::Request::new(ListImagesRequest {})).await.unwrap().into_inner();
    // A release that knows no candidates takes this for no secret.
    assert_eq!((told.secret, told.candidate, told.secret_made_us), (vec![], vec![1; 16], 800));
    let peer = serve(service, &stop).await;
    assert_eq!(gathered(None, std::slice::from_ref(&peer), LONG).await.0.secret, [1; 16]);
    keyring.set(DatedSecret { made_us: 950, secret: [4; 16] });
    assert_eq!(gathered(None, std::slice::from_ref(&peer), LONG).await.0.secret, [9; 16], "ours is older");
    ingest.begin_with(Index::new(KeyHasher::new([4; 16]), IndexLimits::default()), Vec::new());
    assert_eq!(gathered(None, &[peer], LONG).await.0.secret, [4; 16], "it has begun");
    stop.cancel();
}
