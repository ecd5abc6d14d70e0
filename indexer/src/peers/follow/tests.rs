use parking_lot::RwLock;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use warmpath_kv::index::Reader;
use warmpath_kv::{Index, IndexLimits, KeyHasher};
use warmpath_proto::v1::peer_server::PeerServer;

use super::super::{FOLLOWERS_MAX, Publisher};
use super::*;
use crate::books::DecisionIds;
use crate::config::Config;
use crate::decide::metrics::DecideMetrics;
use crate::drift::{DriftMetrics, DriftWatch};
use crate::fleet::{EndpointSpec, Fleet, Observation};
use crate::ledger::Forecast;
use crate::models::Registry;
use crate::peers::PeerNames;
use crate::receipts::Receipts;
use crate::resolve::Resolver;

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
    cached: Reader,
    metrics: PeerMetrics,
    /// Ends what it tells.
    stop: CancellationToken,
}

impl Indexer {
    fn new(id: u32) -> Self {
        Self::with_room(id, 100)
    }

    /// For so many reservations.
    fn with_room(id: u32, room: usize) -> Self {
        let index = Index::new(KeyHasher::new([1; 16]), IndexLimits::default());
        Self {
            books: Arc::new(Mutex::new(Books::new(IndexerId::new(id).unwrap(), room))),
            view: Arc::default(),
            cached: index.reader(),
            metrics: PeerMetrics::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Tells whoever follows. Where.
    async fn serve(&self) -> HostPort {
        let publisher = Publisher::new(self.books.clone(), self.cached.clone(), self.metrics.clone());
        let service = PeerServer::new(publisher.service(self.view.clone(), Clock::start()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server::builder().add_service(service);
        let (stop, incoming) = (self.stop.clone(), TcpIncoming::from(listener));
        tokio::spawn(server.serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned()));
        tokio::spawn(publisher.run(stop));
        HostPort::new("127.0.0.1", port)
    }

    /// Indexers that it follows, under the name `indexers`.
    fn followed(&self) -> i64 {
        self.metrics.connected_to(&HostPort::new("indexers", 1)).get()
    }

    fn follower(&self, name: HostPort, followed: &Followed) -> Follower {
        let address = SocketAddr::from(([127, 0, 0, 1], name.port()));
        Follower { name, address, listed: Listed::yes(), ear: self.ear(followed) }
    }

    fn ear(&self, followed: &Followed) -> Ear {
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
        Ear {
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
        let forecast = Forecast::of_nothing();
        self.books.lock().reserve(id, place, placed(), forecast, Millis(0)).unwrap();
        id
    }
}

fn placed() -> Placed {
    Placed {
        endpoint: ENDPOINT.into(),
        rank: 0,
        queued_tokens: 1,
        sequences: 1,
        lease_ms: 60_000,
        expected: None,
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
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
    until("it is followed", || followed.with_other_keys(0) == 1).await;
    let second = follower.follower(other, &followed);
    let end =
        tokio::time::timeout(PATIENCE, second.follow(&mut RETRY_FIRST.clone(), &mut News::default())).await;
    assert!(matches!(end, Ok(FollowError::Twice)), "{end:?}");
    stop.cancel();
    first.await.unwrap();
    assert_eq!(followed.with_other_keys(0), 0, "the other name may be followed now");
}

/// A headless service names all indexers, this one too, and another set after each step of a rollout.
#[tokio::test]
async fn all_indexers_behind_a_name_are_followed_also_when_the_set_changes() {
    let own = Indexer::new(9);
    endpoints(&own.view);
    let tellers: Vec<Indexer> = (1..4).map(Indexer::new).collect();
    let mut addresses = Vec::new();
    for indexer in tellers.iter().chain([&own]) {
        endpoints(&indexer.view);
        let port = indexer.serve().await.port();
        addresses.push(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let [one, two, three, myself] = addresses[..] else { panic!("{addresses:?}") };
    for indexer in &tellers {
        indexer.reserve();
    }

    let answer = Arc::new(Mutex::new(Some(vec![one, two, myself])));
    let (answers, asked) = (answer.clone(), Arc::new(Mutex::new(0)));
    let count = asked.clone();
    let resolver = Resolver::of(move |_, _| {
        *count.lock() += 1;
        let answer = answers.lock().clone();
        async move { answer.ok_or_else(|| std::io::Error::other("not known")) }
    });
    let say = async |addresses: Option<Vec<SocketAddr>>| {
        *answer.lock() = addresses;
        let before = *asked.lock();
        until("it was asked twice", || *asked.lock() >= before + 2).await;
    };
    let (names, stop) = (vec![HostPort::new("indexers", 1)], CancellationToken::new());
    let ear = own.ear(&Followed::default());
    let refresh = Duration::from_millis(5);
    let peers = tokio::spawn(PeerNames { names, resolver, refresh, ear }.run(stop.clone()));
    until("both are followed", || own.followed() == 2).await;
    until("the load of both is known", || own.sequences() == 2).await;

    say(Some(vec![one, two, three, myself])).await;
    until("one has come", || own.followed() == 3 && own.sequences() == 3).await;
    say(None).await;
    say(Some(Vec::new())).await;
    say(Some(vec![one])).await;
    assert_eq!(own.followed(), 3, "who is there is followed, whatever the resolver says");
    tellers[1].stop.cancel();
    until("one has gone", || own.followed() == 2).await;
    say(Some(vec![three, one])).await;
    assert_eq!(own.followed(), 2);
    stop.cancel();
    peers.await.unwrap();
    assert_eq!(own.followed(), 0);
}

/// One that takes the connection and a follower, and never tells anything.
#[tokio::test]
async fn a_peer_that_says_nothing_is_given_up() {
    #[derive(Clone)]
    struct Mute;

    type Changes =
        std::pin::Pin<Box<dyn futures::Stream<Item = Result<LedgerChanges, tonic::Status>> + Send>>;

    #[tonic::async_trait]
    impl warmpath_proto::v1::peer_server::Peer for Mute {
        type FollowStream = Changes;

        async fn follow(
            &self,
            _request: tonic::Request<FollowRequest>,
        ) -> Result<tonic::Response<Changes>, tonic::Status> {
            Ok(tonic::Response::new(Box::pin(futures::stream::pending())))
        }
    }

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let name = HostPort::new("127.0.0.1", listener.local_addr().unwrap().port());
    let server = Server::builder().add_service(PeerServer::new(Mute));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let follower = Indexer::new(1).follower(name, &Followed::default());
    let (mut pause, mut told) = (RETRY_FIRST, News::default());
    let end = tokio::time::timeout(2 * FIRST_MESSAGE, follower.follow(&mut pause, &mut told)).await;
    assert!(matches!(end, Ok(FollowError::Silent)), "{end:?}");
}

/// Each holds a copy of what is open until it has read it.
#[tokio::test]
async fn no_more_than_so_many_follow_at_once() {
    let teller = Indexer::new(1);
    let publisher = Publisher::new(teller.books.clone(), teller.cached.clone(), teller.metrics.clone());
    let service = publisher.service(teller.view.clone(), Clock::start());
    let follow = async |follower_id| {
        let request = FollowRequest { follower_id, protocol: PROTOCOL };
        warmpath_proto::v1::peer_server::Peer::follow(&service, tonic::Request::new(request)).await
    };
    let mut followers = Vec::new();
    for id in 2..2 + FOLLOWERS_MAX as u64 {
        followers.push(follow(id).await.expect("there is room"));
    }
    let refused = follow(1_000_000).await.err().unwrap();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    followers.pop();
    assert!(follow(1_000_000).await.is_ok());
}

/// More is open at a peer than a batch holds: a connection that breaks must not empty the books for a moment, nor have picks
/// counted twice.
#[test]
fn what_a_snapshot_of_several_batches_names_stays() {
    let (own, mut session) = (Indexer::with_room(1, 20_000), Session::default());
    endpoints(&own.view);
    let (ear, sender) = (own.ear(&Followed::default()), IndexerId::new(2).unwrap());
    let numbers = DecisionIds::new(sender);
    let ids: Vec<DecisionId> = (0..5000).map(|_| numbers.next()).collect();
    let batch = |snapshot, ids: &[DecisionId]| {
        let changes = ids.iter().map(|id| Change { id: *id, what: What::Reserved(placed()) });
        let changes = changes.map(|change| convert::to_wire(&change)).collect();
        LedgerChanges { indexer_id: 2, snapshot, changes, secret_check: 0 }
    };
    let mut tell = |first: &[DecisionId], second: &[DecisionId]| {
        ear.apply(sender, batch(true, first), &mut session);
        let between = own.sequences();
        ear.apply(sender, batch(false, second), &mut session);
        (between, own.sequences())
    };
    let (first, second) = ids.split_at(BATCH_CHANGES_MAX);
    assert_eq!(tell(first, second), (BATCH_CHANGES_MAX as u64, 5000));
    assert_eq!(tell(first, second), (5000, 5000), "a new connection");
    assert_eq!(
        tell(first, &second[..4]),
        (5000, BATCH_CHANGES_MAX as u64 + 4),
        "what is over there is over here"
    );
    assert_eq!(tell(&first[..10], &[]), (10, 10));
}
