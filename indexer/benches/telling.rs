//! How long until another indexer counts a pick, on one machine.
//!
//! `cargo bench --package warmpath-indexer --bench telling`. One indexer's books and publisher serve over loopback, another one follows
//! them as the program does; both have worker threads of their own. A pick brings 128 blocks (2,048 tokens), whose keys are told with
//! it. Measured from the reservation at the one until the other's ledger has it, looked at every 20 microseconds and what the timer
//! takes longer, at several rates of picks. A network between machines comes on top.

#![expect(clippy::expect_used, reason = "a bench without its sockets has nothing to measure")]
#![expect(clippy::print_stdout, reason = "figures go there")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use warmpath_indexer::books::{Books, DecisionIds, Expected, IndexerId, Placed};
use warmpath_indexer::clock::Clock;
use warmpath_indexer::config::{Config, HostPort};
use warmpath_indexer::decide::metrics::DecideMetrics;
use warmpath_indexer::drift::{DriftMetrics, DriftWatch};
use warmpath_indexer::fleet::{EndpointSpec, Fleet, Observation, View};
use warmpath_indexer::ledger::Forecast;
use warmpath_indexer::models::Registry;
use warmpath_indexer::peers::{Ear, Followed, PeerMetrics, PeerNames, Publisher};
use warmpath_indexer::receipts::Receipts;
use warmpath_indexer::report::Reporter;
use warmpath_indexer::resolve::Resolver;
use warmpath_kv::{Index, IndexLimits, KeyHasher, Namespace, PromptKeys, StreamId};
use warmpath_proto::v1::peer_server::PeerServer;

/// Between two picks, and how many of them are measured.
const LANES: [(Duration, usize); 4] = [
    (Duration::from_millis(50), 200),
    (Duration::from_millis(10), 1000),
    (Duration::from_millis(1), 5000),
    (Duration::from_micros(200), 10_000),
];
/// Of a pick's prompt.
const TOKENS: u32 = 2048;
const ENDPOINT: &str = "10.0.0.1:80";
const LOOK: Duration = Duration::from_micros(20);
const FLEET: &str = "{ models: [{ name: m }], endpoints: { static: [{ address: \"10.0.0.1:80\" }] } }";

/// What one indexer has, as far as it tells or hears.
struct Indexer {
    books: Arc<Mutex<Books>>,
    view: Arc<View>,
    index: Arc<RwLock<Index>>,
    clock: Clock,
}

fn main() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let (serving, following) = (runtime().expect("threads"), runtime().expect("threads"));
    let (teller, follower) = (Indexer::new(1), Indexer::new(2));
    let keys = teller.keys();
    let address = serving.block_on(teller.serve());
    following.spawn(follower.follow(address));
    while !teller.books.lock().has_followers() {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("| picks a second, at most | picks | p50, us | p90 | p99 | most |\n|---|---|---|---|---|---|");
    let ids = DecisionIds::new(teller.books.lock().own());
    let place =
        teller.view.current().by_name(ENDPOINT).map(|endpoint| endpoint.ranks.first().map(|rank| rank.place));
    let place = place.flatten().expect("it is configured");
    let mut before = 0;
    for (gap, count) in LANES {
        let books = follower.books.clone();
        let watch = std::thread::spawn(move || counted(&books, before, count));
        let mut made = Vec::with_capacity(count);
        for _ in 0..count {
            std::thread::sleep(gap);
            made.push(Instant::now());
            let now = teller.clock.now();
            let reserved = teller.books.lock().reserve(ids.next(), place, placed(&keys), forecast(), now);
            reserved.expect("there is room");
        }
        let counted = watch.join().expect("it counts");
        let lags = made.iter().zip(&counted).map(|(made, counted)| counted.saturating_duration_since(*made));
        let mut lags: Vec<Duration> = lags.collect();
        lags.sort_unstable();
        let at = |share: usize| lags.get((lags.len() - 1) * share / 100).map_or(0, Duration::as_micros);
        let rate = 1.0 / gap.as_secs_f64();
        println!("| {rate:.0} | {count} | {} | {} | {} | {} |", at(50), at(90), at(99), at(100));
        before += count;
    }
}

/// When each of the next picks was in the ledger. They come in the order in which they were made.
fn counted(books: &Mutex<Books>, before: usize, count: usize) -> Vec<Instant> {
    let mut counted = Vec::with_capacity(count);
    while counted.len() < count {
        std::thread::sleep(LOOK);
        let known = books.lock().ledger().len();
        let at = Instant::now();
        counted.resize(known.saturating_sub(before).clamp(counted.len(), count), at);
    }
    counted
}

fn placed(keys: &Arc<PromptKeys>) -> Placed {
    Placed {
        endpoint: ENDPOINT.into(),
        rank: 0,
        queued_tokens: TOKENS.into(),
        sequences: 1,
        lease_ms: 600_000,
        expected: Some(Expected { keys: keys.clone(), for_ms: 15_000 }),
    }
}

fn forecast() -> Forecast {
    Forecast {
        model: None,
        policy: "cost",
        cached_tokens: Vec::new(),
        prompt_tokens: None,
        work_tokens: None,
        size_tokens: TOKENS,
        reachable_tokens: 0,
    }
}

// === impl Indexer ===

impl Indexer {
    fn new(id: u32) -> Self {
        let config = Config::parse(FLEET).expect("a configuration");
        let endpoints = config.endpoints.fixed.iter();
        let endpoints = endpoints.filter_map(|endpoint| EndpointSpec::of_static(endpoint, &config.models));
        let mut fleet = Fleet::new(3);
        fleet.apply(Observation::Listed { source: 0, endpoints: endpoints.collect() });
        let view = Arc::new(View::default());
        view.publish(fleet.snapshot());
        let mut index = Index::new(KeyHasher::new([1; 16]), IndexLimits::default());
        index.add_stream(StreamId(0), "m");
        index.guess_block_size(StreamId(0), 16);
        Self {
            books: Arc::new(Mutex::new(Books::new(IndexerId::new(id).expect("not 0"), 1 << 20))),
            view,
            index: Arc::new(RwLock::new(index)),
            clock: Clock::start(),
        }
    }

    fn keys(&self) -> Arc<PromptKeys> {
        let tokens: Vec<u32> = (0..TOKENS).collect();
        let namespace = Namespace { model: "m", lora: None, salt: None };
        Arc::new(self.index.read().key_plan().keys(&namespace, &tokens))
    }

    async fn serve(&self) -> HostPort {
        let publisher =
            Publisher::new(self.books.clone(), self.index.read().reader(), PeerMetrics::default());
        let service = PeerServer::new(publisher.service(self.view.clone(), self.clock));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        tokio::spawn(publisher.run(CancellationToken::new()));
        HostPort::new("127.0.0.1", port)
    }

    fn follow(&self, address: HostPort) -> impl Future<Output = ()> + Send + use<> {
        let config = Config::parse(FLEET).expect("a configuration");
        let reporter = Reporter {
            books: self.books.clone(),
            view: self.view.clone(),
            clock: self.clock,
            registry: Arc::new(Registry::of_names(&config.models)),
            index: self.index.clone(),
            drift: Arc::new(DriftWatch::new(DriftMetrics::default())),
            sources: Arc::default(),
            receipts: Arc::new(Receipts::new(config.receipts)),
            lengths: Arc::default(),
            outliers: config.outliers,
            metrics: DecideMetrics::new(),
        };
        let ear = Ear {
            books: self.books.clone(),
            view: self.view.clone(),
            clock: self.clock,
            reporter,
            cached: self.index.read().reader(),
            followed: Followed::default(),
            metrics: PeerMetrics::default(),
        };
        let names = PeerNames {
            names: vec![address],
            resolver: Resolver::system(),
            refresh: Duration::from_secs(60),
            ear,
        };
        names.run(CancellationToken::new())
    }
}
