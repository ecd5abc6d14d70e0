//! How long until another indexer hears of a pick, on one machine.
//!
//! `cargo bench --package warmpath-indexer --bench telling`. One indexer's books and publisher serve a follower over loopback; both
//! have worker threads of their own. A pick brings 128 blocks (2,048 tokens), whose keys are told with it. Measured from the
//! reservation until the follower has its decoded change, at several rates of picks. A network between machines comes on top.

#![expect(clippy::expect_used, reason = "a bench without its sockets has nothing to measure")]
#![expect(clippy::print_stdout, reason = "figures go there")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use warmpath_indexer::books::{Books, DecisionIds, Expected, IndexerId, Placed};
use warmpath_indexer::clock::Clock;
use warmpath_indexer::ledger::Forecast;
use warmpath_indexer::lookups::Lookups;
use warmpath_indexer::peers::{PeerMetrics, Publisher};
use warmpath_kv::{Index, IndexLimits, KeyHasher, Millis, Namespace, PromptKeys, StreamId};
use warmpath_proto::v1::FollowRequest;
use warmpath_proto::v1::ledger_change::What;
use warmpath_proto::v1::peer_client::PeerClient;
use warmpath_proto::v1::peer_server::PeerServer;

/// Picks between which there is so much time, and how many of them are measured.
const LANES: [(Duration, usize); 3] =
    [(Duration::from_millis(50), 200), (Duration::from_millis(5), 1000), (Duration::from_micros(500), 5000)];
/// More than any lane has picks.
const HEARD_MAX: usize = 1 << 14;
/// Of a pick's prompt.
const TOKENS: u32 = 2048;

/// What the follower heard, and when.
struct Heard {
    decision: u64,
    at: Instant,
}

fn main() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let (serving, following) = (runtime().expect("threads"), runtime().expect("threads"));
    let own = IndexerId::new(1).expect("not 0");
    let books = Arc::new(Mutex::new(Books::new(own, 1 << 20)));
    let keys = keys();
    let address = serving.block_on(serve(books.clone()));
    let (heard, mut hears) = mpsc::channel(HEARD_MAX);
    following.block_on(async { tokio::spawn(follow(address, heard)) });
    while !books.lock().has_followers() {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("| picks a second | picks | p50, us | p90 | p99 | most |\n|---|---|---|---|---|---|");
    let ids = DecisionIds::new(own);
    for (gap, count) in LANES {
        let mut lags: Vec<Duration> = Vec::with_capacity(count);
        let mut made = Vec::with_capacity(count);
        for _ in 0..count {
            std::thread::sleep(gap);
            let id = ids.next();
            made.push((id.0, Instant::now()));
            let mut books = books.lock();
            books.reserve(id, StreamId(0), placed(&keys), forecast(), Millis(0)).expect("there is room");
        }
        for (decision, at) in made {
            let told = hears.blocking_recv().expect("the follower lives");
            assert_eq!(told.decision, decision, "in the order in which they were made");
            lags.push(told.at.saturating_duration_since(at));
        }
        lags.sort_unstable();
        let at = |share: usize| lags.get((lags.len() - 1) * share / 100).map_or(0, Duration::as_micros);
        let rate = 1.0 / gap.as_secs_f64();
        println!("| up to {rate:.0} | {count} | {} | {} | {} | {} |", at(50), at(90), at(99), at(100));
    }
}

fn keys() -> Arc<PromptKeys> {
    let mut index = Index::new(KeyHasher::new([1; 16]), IndexLimits::default());
    index.add_stream(StreamId(0), "model");
    index.guess_block_size(StreamId(0), 16);
    let tokens: Vec<u32> = (0..TOKENS).collect();
    let namespace = Namespace { model: "model", lora: None, salt: None };
    Arc::new(index.key_plan().keys(&namespace, &tokens))
}

fn placed(keys: &Arc<PromptKeys>) -> Placed {
    Placed {
        endpoint: "10.0.0.1:80".into(),
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

async fn serve(books: Arc<Mutex<Books>>) -> SocketAddr {
    let index = Index::new(KeyHasher::new([1; 16]), IndexLimits::default());
    let publisher = Publisher::new(books, Arc::new(Lookups::new(index.reader())), PeerMetrics::default());
    let service = PeerServer::new(publisher.service(Arc::default(), Clock::start()));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    tokio::spawn(publisher.run(CancellationToken::new()));
    address
}

async fn follow(address: SocketAddr, heard: mpsc::Sender<Heard>) {
    let mut client = PeerClient::connect(format!("http://{address}")).await.expect("it listens");
    let request = FollowRequest { follower_id: 2, protocol: 1 };
    let mut stream = client.follow(request).await.expect("it serves").into_inner();
    while let Some(batch) = stream.message().await.expect("it goes on telling") {
        let at = Instant::now();
        for change in batch.changes {
            if let Some(What::Reserved(_)) = change.what {
                heard.send(Heard { decision: change.decision_id, at }).await.expect("it is listened to");
            }
        }
    }
}
