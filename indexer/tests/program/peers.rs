//! Several indexers decide like one, and each alone when the others are gone.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::time::Duration;

use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::transport::Channel;
use warmpath_proto::v1::scorer_client::ScorerClient;

use crate::support::{Indexer, alive, end, eventually, first_byte, report, tokens};

const ENDPOINTS: usize = 8;
/// Requests of a run, and how many of them are open at the same time.
const REQUESTS: usize = 800;
const OPEN: usize = 48;
/// Pause between requests: 500 of them a second.
const PAUSE: Duration = Duration::from_millis(2);

/// `count` indexers that all have the same list of peers, themselves included.
async fn fleet(count: usize, reservation_ms: u64) -> Vec<Indexer> {
    let indexers = start(count, reservation_ms, true).await;
    for indexer in &indexers {
        let followed = async || indexer.metric("warmpath_peer_followers").await == (count - 1) as f64;
        eventually("all follow all", followed).await;
    }
    indexers
}

async fn start(count: usize, reservation_ms: u64, are_peers: bool) -> Vec<Indexer> {
    start_over(ENDPOINTS, count, reservation_ms, are_peers).await
}

/// The same over so many endpoints.
async fn start_over(endpoints: usize, count: usize, reservation_ms: u64, are_peers: bool) -> Vec<Indexer> {
    let ports: Vec<u16> = {
        let held: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
    };
    let peers: Vec<String> =
        ports.iter().filter(|_| are_peers).map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    let endpoints: String =
        (0..endpoints).map(|i| format!("    - {{ address: \"{}\" }}\n", endpoint(i))).collect();
    join_all(ports.iter().map(async |port| {
        let yaml = format!(
            "listen: {{ grpc: \"127.0.0.1:{port}\", admin: \"127.0.0.1:0\" }}\n\
             models: [{{ name: tiny }}]\n\
             scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\n\
             leases: {{ reservation_ms: {reservation_ms} }}\n\
             peers: [{}]\n\
             endpoints:\n  static:\n{endpoints}",
            peers.join(", ")
        );
        Indexer::start(&yaml).await
    }))
    .await
}

fn endpoint(number: usize) -> String {
    format!("10.0.0.{}:8000", number + 1)
}

fn number(endpoint: &str) -> usize {
    (0..ENDPOINTS).find(|number| self::endpoint(*number) == endpoint).expect("a configured endpoint")
}

/// The mean over a run of (tokens open on the fullest endpoint ÷ mean of all). Each request and each report goes to an
/// indexer chosen at random, so reports mostly reach one that did not decide.
async fn imbalance(indexers: &[Indexer]) -> f64 {
    let mut random = StdRng::seed_from_u64(11);
    let mut clients: Vec<ScorerClient<Channel>> = join_all(indexers.iter().map(Indexer::client)).await;
    let mut open: VecDeque<(u64, usize, u32)> = VecDeque::new();
    let mut load = [0u64; ENDPOINTS];
    let (mut sum, mut samples) = (0.0, 0);
    for _ in 0..REQUESTS {
        let size = random.random_range(200..2000);
        let asked = random.random_range(0..clients.len());
        let answer = clients[asked].score(tokens(0..size)).await.unwrap().into_inner();
        let picked = number(&answer.candidates[0].endpoint);
        load[picked] += u64::from(size);
        open.push_back((answer.decision_id, picked, size));
        if open.len() > OPEN {
            let (id, place, size) = open.pop_front().unwrap();
            load[place] -= u64::from(size);
            let told = random.random_range(0..clients.len());
            report(&mut clients[told], vec![end(id, &endpoint(place), None)]).await;
            let mean = load.iter().sum::<u64>() as f64 / ENDPOINTS as f64;
            sum += *load.iter().max().unwrap() as f64 / mean;
            samples += 1;
        }
        tokio::time::sleep(PAUSE).await;
    }
    for (id, place, _) in open {
        report(&mut clients[0], vec![end(id, &endpoint(place), None)]).await;
    }
    sum / f64::from(samples)
}

/// Fifteen of sixteen endpoints have something to do; four indexers, each asked by a client of its own, get two hundred requests
/// at once. All of them see the same best endpoint, and none of them all of the burst.
// D21 (ai-dynamo/dynamo#589)
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_over_four_indexers_does_not_pile_up_on_the_one_best_endpoint() {
    const MANY: usize = 16;
    let indexers = start_over(MANY, 4, 30_000, true).await;
    for indexer in &indexers {
        let followed = async || indexer.metric("warmpath_peer_followers").await == 3.0;
        eventually("all follow all", followed).await;
    }
    let clients: Vec<ScorerClient<Channel>> = join_all(indexers.iter().map(Indexer::client)).await;
    for _ in 1..MANY {
        clients[0].clone().score(tokens(0..1000)).await.unwrap();
    }
    for indexer in &indexers {
        let idle = async || indexer.loads().await.iter().filter(|(_, queued, _)| *queued == 0).count();
        eventually("all see the one that is idle", async || idle().await == 1).await;
    }
    let burst = (0..200).map(|number| {
        let mut client = clients[number % 4].clone();
        async move { client.score(tokens(0..500)).await.unwrap().into_inner().candidates[0].endpoint.clone() }
    });
    let mut picks = std::collections::HashMap::<String, usize>::new();
    for pick in join_all(burst).await {
        *picks.entry(pick).or_default() += 1;
    }
    let most = picks.values().max().unwrap();
    assert!(picks.len() == MANY && *most < 200 * 2 / MANY, "{picks:?}");
    for indexer in indexers {
        indexer.stop().await;
    }
}

async fn all_idle(indexer: &Indexer) -> bool {
    indexer.loads().await.iter().all(|(_, queued, active)| (*queued, *active) == (0, 0))
}

/// Traffic split at random over three indexers is balanced like that of one, within 20 %.
#[tokio::test(flavor = "multi_thread")]
async fn three_indexers_balance_like_one() {
    let one = fleet(1, 30_000).await;
    let alone = imbalance(&one).await;
    let three = fleet(3, 30_000).await;
    let together = imbalance(&three).await;
    let strangers = start(3, 30_000, false).await;
    let apart = imbalance(&strangers).await;
    println!("imbalance of one {alone:.3}, of three {together:.3}, of three that share nothing {apart:.3}");
    assert!(apart > together, "sharing changed nothing: {apart:.3} apart, {together:.3} together");
    assert!(together <= alone * 1.2, "imbalance of three {together:.3}, of one {alone:.3}");
    join_all(strangers.into_iter().map(Indexer::stop)).await;
    let all: Vec<Indexer> = three.into_iter().chain(one).collect();
    for indexer in &all {
        eventually("every count is zero at the end", async || all_idle(indexer).await).await;
        assert_eq!(indexer.metric("warmpath_ledger_invariant_violations_total").await, 0.0);
    }
    for indexer in all {
        indexer.stop().await;
    }
}

/// What one indexer reserves, all know; what is reported to any, all know.
#[tokio::test]
async fn reservations_and_reports_reach_every_indexer() {
    let indexers = fleet(3, 30_000).await;
    let mut clients = join_all(indexers.iter().map(Indexer::client)).await;
    let answer = clients[0].score(tokens(0..1000)).await.unwrap().into_inner();
    let (id, place) = (answer.decision_id, answer.candidates[0].endpoint.clone());
    let everywhere = async |load: (u64, u64), place: &str| {
        for indexer in &indexers {
            eventually("the load is known", async || indexer.load(place).await == load).await;
        }
    };
    everywhere((1000, 1), &place).await;
    // Served elsewhere, and told to an indexer that did not decide.
    let moved = answer.candidates[1].endpoint.clone();
    assert_eq!(report(&mut clients[1], vec![first_byte(id, &moved)]).await, 0);
    everywhere((0, 1), &moved).await;
    everywhere((0, 0), &place).await;
    assert_eq!(report(&mut clients[2], vec![alive(id)]).await, 0);
    assert_eq!(report(&mut clients[2], vec![end(id, &moved, None)]).await, 0);
    everywhere((0, 0), &moved).await;
    for indexer in indexers {
        indexer.stop().await;
    }
}

/// Peers that go away take nothing with them: decisions go on, and what they had reserved ends with its lease.
#[tokio::test]
async fn without_peers_decisions_go_on_and_their_load_expires() {
    let mut indexers = fleet(2, 1000).await;
    let gone = indexers.pop().unwrap();
    let left = indexers.pop().unwrap();
    let answer = gone.client().await.score(tokens(0..1000)).await.unwrap().into_inner();
    let place = answer.candidates[0].endpoint.clone();
    eventually("the load is known", async || left.load(&place).await == (1000, 1)).await;
    // A change just before the end is told before the end.
    let told = gone.client().await.score(tokens(0..700)).await.unwrap().into_inner();
    gone.stop().await;
    let other = told.candidates[0].endpoint.clone();
    eventually("the last change is known", async || left.load(&other).await.1 == 1).await;
    let mut client = left.client().await;
    assert_eq!(left.load(&place).await, (1000, 1), "it counts until its lease ends");
    let own = client.score(tokens(0..10)).await.unwrap().into_inner();
    assert!(
        ![place, other].contains(&own.candidates[0].endpoint),
        "the load of the peer that is gone still counts"
    );
    report(&mut client, vec![end(own.decision_id, &own.candidates[0].endpoint, None)]).await;
    eventually("the lease ends", async || all_idle(&left).await).await;
    left.stop().await;
}

/// An indexer that starts while others have requests open learns of them at once.
#[tokio::test]
async fn a_late_indexer_learns_what_is_open() {
    let first = fleet(1, 30_000).await.pop().unwrap();
    let answer = first.client().await.score(tokens(0..1000)).await.unwrap().into_inner();
    let place = answer.candidates[0].endpoint.clone();
    report(&mut first.client().await, vec![first_byte(answer.decision_id, &place)]).await;
    let yaml = format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\nmodels: [{{ name: tiny }}]\n\
         scrape: {{ interval_ms: 60000 }}\npeers: [\"{}\"]\nendpoints: {{ static: [{{ address: \"{place}\" }}] }}\n",
        first.bound.grpc
    );
    let late = Indexer::start(&yaml).await;
    eventually("the load is known", async || late.load(&place).await == (0, 1)).await;
    late.stop().await;
    first.stop().await;
}
