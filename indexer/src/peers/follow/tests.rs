use parking_lot::RwLock;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use warmpath_kv::{Index, IndexLimits, KeyHasher};
use warmpath_proto::v1::peer_server::PeerServer;

use super::super::Publisher;
use super::*;
use crate::books::DecisionIds;
use crate::config::Config;
use crate::decide::metrics::DecideMetrics;
use crate::drift::{DriftMetrics, DriftWatch};
use crate::fleet::{EndpointSpec, Fleet, Observation};
use crate::ledger::Forecast;
use crate::models::Registry;
use crate::receipts::Receipts;

const ENDPOINT: &str = "10.0.0.1:80";
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

fn endpoints(view: &View) {
    let mut fleet = Fleet::new(3);
    let spec = EndpointSpec::plain(([10, 0, 0, 1], 80));
    fleet.apply(Observation::Listed { source: 0, endpoints: vec![spec] });
    view.publish(fleet.snapshot());
}

/// What one indexer has, as far as it follows or is followed.
struct Indexer {
    books: Arc<Mutex<Books>>,
    view: Arc<View>,
    cached: Arc<Lookups>,
    metrics: PeerMetrics,
}

impl Indexer {
    fn new(id: u32) -> Self {
        let index = Index::new(KeyHasher::new([1; 16]), IndexLimits::default());
        Self {
            books: Arc::new(Mutex::new(Books::new(IndexerId::new(id).unwrap(), 100))),
            view: Arc::default(),
            cached: Arc::new(Lookups::new(index.reader())),
            metrics: PeerMetrics::default(),
        }
    }

    /// Tells whoever follows. Where.
    async fn serve(&self) -> HostPort {
        let publisher = Publisher::new(self.books.clone(), self.cached.clone(), self.metrics.clone());
        let service = PeerServer::new(publisher.service(self.view.clone(), Clock::start()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        tokio::spawn(publisher.run(CancellationToken::new()));
        HostPort::new("127.0.0.1", port)
    }

    fn follower(&self, peer: HostPort, followed: &Followed) -> Follower {
        let (config, clock) = (Config::parse("{}").unwrap(), Clock::start());
        let index = Arc::new(RwLock::new(Index::new(KeyHasher::new([1; 16]), IndexLimits::default())));
        let reporter = Reporter {
            books: self.books.clone(),
            view: self.view.clone(),
            clock,
            registry: Arc::new(Registry::of_names(&[])),
            index,
            drift: Arc::new(DriftWatch::new(DriftMetrics::default())),
            sources: Arc::default(),
            receipts: Arc::new(Receipts::new(config.receipts)),
            lengths: Arc::default(),
            outliers: config.outliers,
            metrics: DecideMetrics::new(),
        };
        Follower {
            peer,
            books: self.books.clone(),
            view: self.view.clone(),
            clock,
            reporter,
            cached: self.cached.clone(),
            followed: followed.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// Changes that came to this.
    fn heard(&self, result: &'static str) -> u64 {
        self.metrics.heard.get_or_create(&HeardLabels { result }).get()
    }

    fn sequences(&self) -> u64 {
        let fleet = self.view.current();
        let place = fleet.by_name(ENDPOINT).map(|endpoint| endpoint.ranks[0].place);
        place.map_or(0, |place| self.books.lock().ledger().load(place).sequences)
    }

    fn reserve(&self) -> DecisionId {
        let fleet = self.view.current();
        let place = fleet.by_name(ENDPOINT).unwrap().ranks[0].place;
        let id = DecisionIds::new(self.books.lock().own()).next();
        let placed = Placed {
            endpoint: ENDPOINT.into(),
            rank: 0,
            queued_tokens: 1,
            sequences: 1,
            lease_ms: 60_000,
            expected: None,
        };
        let forecast = Forecast::of_nothing();
        self.books.lock().reserve(id, place, placed, forecast, Millis(0)).unwrap();
        id
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// An indexer that starts beside others hears what is open before its resolver has answered; the load and an operator's
/// order must be there when it has.
#[tokio::test]
async fn what_a_peer_told_of_an_endpoint_before_that_was_known_here_is_told_again() {
    let (teller, late) = (Indexer::new(1), Indexer::new(2));
    endpoints(&teller.view);
    teller.reserve();
    teller.view.current().endpoints[0].meter.order_draining(true, 7);
    let peer = teller.serve().await;
    tokio::spawn(late.follower(peer, &Followed::default()).run(CancellationToken::new()));
    until("it was told in vain", || late.heard("unknown_endpoint") == 2).await;
    assert_eq!(late.sequences(), 0);
    endpoints(&late.view);
    until("it was told again", || late.sequences() == 1).await;
    until("the order too", || late.view.current().endpoints[0].meter.is_draining()).await;
    assert_eq!(late.heard("unknown_endpoint"), 2);
}

/// What a peer saw of an endpoint counts once, under however many names the peer is configured.
#[tokio::test]
async fn a_peer_with_two_names_is_followed_once() {
    let (teller, follower) = (Indexer::new(1), Indexer::new(2));
    let (peer, followed) = (teller.serve().await, Followed::default());
    let other = HostPort::new("localhost", peer.port());
    let (first, stop) = (follower.follower(peer, &followed), CancellationToken::new());
    let first = tokio::spawn(first.run(stop.clone()));
    until("it is followed", || !followed.0.lock().is_empty()).await;
    let second = follower.follower(other, &followed);
    let end = tokio::time::timeout(PATIENCE, second.follow(&mut RETRY_FIRST.clone())).await;
    assert!(matches!(end, Ok(FollowError::Twice)), "{end:?}");
    stop.cancel();
    first.await.unwrap();
    assert!(followed.0.lock().is_empty(), "the other name may be followed now");
}
