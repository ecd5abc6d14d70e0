//! What reports and operators say of endpoints, and what decisions make of it.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use tonic::transport::Channel;
use warmpath_proto::v1::scorer_client::ScorerClient;
use warmpath_proto::v1::{Event, ScoreResponse};

use crate::engine::{BLOCK, Engine};
use crate::support::{Indexer, config, end, eventually, failed, first_byte, report, tokens};

const HOSTS: [&str; 4] = ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.4:8000"];

async fn score(client: &mut ScorerClient<Channel>, ids: Range<u32>) -> ScoreResponse {
    client.score(tokens(ids)).await.unwrap().into_inner()
}

fn picked(answer: &ScoreResponse) -> String {
    answer.candidates[0].endpoint.clone()
}

/// The first byte after this many microseconds.
fn first_byte_after(decision_id: u64, endpoint: &str, elapsed_us: u64) -> Event {
    Event { elapsed_us, ..first_byte(decision_id, endpoint) }
}

/// A configuration of these engines as the first of [`HOSTS`], all of whose events are read.
fn heard(engines: &[Engine]) -> String {
    let endpoints: String = HOSTS
        .iter()
        .zip(engines)
        .map(|(host, engine)| format!("    - {{ address: \"{host}\", events: \"{}\" }}\n", engine.events))
        .collect();
    format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\nmodels: [{{ name: tiny }}]\n\
         scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\nendpoints:\n  static:\n{endpoints}"
    )
}

async fn endpoint(indexer: &Indexer, name: &str) -> Value {
    let state = indexer.state().await;
    let found = state["endpoints"].as_array().unwrap().iter().find(|e| e["endpoint"] == name).cloned();
    found.expect("a known endpoint")
}

/// One endpoint needs three times as long per token: its factor rises, and of requests that come one by one and all stay
/// open, it gets fewer.
#[tokio::test]
async fn a_slow_endpoint_is_found_and_gets_less() {
    let mut engines = HOSTS.map(|_| Engine::start());
    let indexer = Indexer::start(&heard(&engines)).await;
    let mut client = indexer.client().await;
    for engine in &mut engines {
        // One block each that no prompt has, so that all caches are known.
        engine.store(90_000_000..90_000_000 + BLOCK);
    }
    eventually("all are heard", async || {
        indexer.state().await["index"]["references"].as_u64() == Some(HOSTS.len() as u64)
    })
    .await;
    let slow = HOSTS[0];
    let mut number = 0;
    // Each endpoint in turn, so that all show what they need; nothing else waits there.
    for _ in 0..40 {
        for _ in HOSTS {
            let request = warmpath_proto::v1::ScoreRequest {
                policy: "round_robin".into(),
                ..tokens(number * 1000..number * 1000 + 1000)
            };
            number += 1;
            let answer = client.score(request).await.unwrap().into_inner();
            let endpoint = picked(&answer);
            let us = if endpoint == slow { 300_000 } else { 100_000 };
            let id = answer.decision_id;
            report(&mut client, vec![first_byte_after(id, &endpoint, us), end(id, &endpoint, None)]).await;
        }
    }
    eventually("speeds are compared", async || {
        endpoint(&indexer, slow).await["ranks"][0]["slowness"].as_f64().unwrap() > 1.8
    })
    .await;
    for host in &HOSTS[1..] {
        assert_eq!(endpoint(&indexer, host).await["ranks"][0]["slowness"], 1.0, "{host}");
    }
    let slowness = indexer.metric(&format!("warmpath_endpoint_slowness{{endpoint=\"{slow}\"}}")).await;
    assert!((1.8..3.0).contains(&slowness), "{slowness}");
    // A burst: queues grow until they cost the same everywhere.
    let mut picks: BTreeMap<String, u32> = BTreeMap::new();
    for turn in 0..100 {
        let answer = score(&mut client, 1_000_000 + turn * 1000..1_000_000 + turn * 1000 + 1000).await;
        *picks.entry(picked(&answer)).or_default() += 1;
    }
    let of_slow = picks.remove(slow).unwrap_or(0);
    assert!(of_slow >= 5 && picks.values().all(|count| of_slow * 3 < count * 2), "{of_slow} {picks:?}");
    indexer.stop().await;
}

/// Of an endpoint that tells no events, nobody knows what its cache spares it: an answer that comes early says nothing.
#[tokio::test]
async fn where_a_cache_is_not_known_no_speed_is_learnt() {
    let mut engine = Engine::start();
    let others = "    - { address: \"10.0.0.2:8000\" }\n    - { address: \"10.0.0.3:8000\" }\n";
    let yaml = format!("{}{others}", heard(std::slice::from_ref(&engine)));
    let indexer = Indexer::start(&yaml).await;
    let mut client = indexer.client().await;
    engine.store(90_000_000..90_000_000 + BLOCK);
    eventually("it is heard", async || indexer.state().await["index"]["references"].as_u64() == Some(1))
        .await;
    for number in 0..90 {
        let request = warmpath_proto::v1::ScoreRequest {
            policy: "round_robin".into(),
            ..tokens(number * 1000..number * 1000 + 1000)
        };
        let answer = client.score(request).await.unwrap().into_inner();
        let endpoint = picked(&answer);
        let us = if endpoint == HOSTS[1] { 25_000 } else { 100_000 };
        let id = answer.decision_id;
        report(&mut client, vec![first_byte_after(id, &endpoint, us), end(id, &endpoint, None)]).await;
    }
    // Longer than between two comparisons of speeds.
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    for host in &HOSTS[..3] {
        assert_eq!(endpoint(&indexer, host).await["ranks"][0]["slowness"], 1.0, "{host}");
    }
    indexer.stop().await;
}

/// Five failures in a row: it gets nothing while it is ejected, one request when its time is over, and after an answer it
/// is one of them again.
#[tokio::test]
async fn an_endpoint_that_keeps_failing_is_ejected_and_tried_again() {
    let yaml = format!(
        "{}outliers: {{ failures: 5, eject_ms: 300 }}\npolicy: {{ name: round_robin }}\n",
        config(&HOSTS)
    );
    let indexer = Indexer::start(&yaml).await;
    let mut client = indexer.client().await;
    let bad = HOSTS[1];
    let standing = async || endpoint(&indexer, bad).await["standing"].as_str().unwrap().to_owned();
    let mut failures = 0;
    while standing().await == "trusted" {
        let answer = score(&mut client, 0..100).await;
        let endpoint = picked(&answer);
        let id = answer.decision_id;
        if endpoint == bad {
            failures += 1;
            report(&mut client, vec![failed(id, bad)]).await;
        } else {
            report(&mut client, vec![first_byte(id, &endpoint), end(id, &endpoint, None)]).await;
        }
        assert!(failures <= 5, "still chosen after {failures} failures");
    }
    assert_eq!(failures, 5);
    let ejected = async || indexer.metric("warmpath_endpoint_ejections_total{result=\"ejected\"}").await;
    assert_eq!(ejected().await, 1.0);
    // Its time over, one request tries it; as long as nothing is heard of that, no other does.
    let mut probe = None;
    eventually("it is tried again", async || {
        let answer = client.clone().score(tokens(0..100)).await.unwrap().into_inner();
        if answer.candidates[0].endpoint == bad {
            probe = Some(answer.decision_id);
        }
        probe.is_some()
    })
    .await;
    assert_eq!(standing().await, "probed");
    for _ in 0..12 {
        assert_ne!(picked(&score(&mut client, 0..100).await), bad);
    }
    report(&mut client, vec![first_byte(probe.unwrap(), bad)]).await;
    assert_eq!(standing().await, "trusted");
    assert_eq!(indexer.metric("warmpath_endpoint_ejections_total{result=\"returned\"}").await, 1.0);
    let mut picks = Vec::new();
    for _ in 0..4 {
        picks.push(picked(&score(&mut client, 0..100).await));
    }
    assert!(picks.contains(&bad.to_owned()), "{picks:?}");
    indexer.stop().await;
}

/// All fail: all are used, since nothing is better than them.
#[tokio::test]
async fn where_all_fail_all_are_used() {
    let yaml = format!("{}outliers: {{ failures: 1, eject_ms: 60000 }}\n", config(&HOSTS[..2]));
    let indexer = Indexer::start(&yaml).await;
    let mut client = indexer.client().await;
    for _ in 0..2 {
        let answer = score(&mut client, 0..100).await;
        report(&mut client, vec![failed(answer.decision_id, &picked(&answer))]).await;
    }
    for host in &HOSTS[..2] {
        assert_eq!(endpoint(&indexer, host).await["standing"], "ejected");
    }
    assert_eq!(score(&mut client, 0..100).await.candidates.len(), 2);
    indexer.stop().await;
}

/// An endpoint that is to go gets nothing new from the next decision on, and what it has counts on.
#[tokio::test]
async fn a_draining_endpoint_gets_nothing_new_and_its_load_counts_on() {
    let indexer = Indexer::start(&config(&HOSTS[..2])).await;
    let mut client = indexer.client().await;
    let first = score(&mut client, 0..1000).await;
    let leaving = picked(&first);
    let (status, told) = indexer.post(&format!("/drain?endpoint={leaving}")).await;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((status, &told["draining"], &told["active_sequences"]), (200, &true.into(), &1.into()));
    for _ in 0..20 {
        let answer = score(&mut client, 0..1000).await;
        assert!(answer.candidates.iter().all(|candidate| candidate.endpoint != leaving));
    }
    assert_eq!(indexer.load(&leaving).await, (1000, 1));
    let draining = format!("warmpath_endpoint_draining{{endpoint=\"{leaving}\"}}");
    assert_eq!(indexer.metric(&draining).await, 1.0);
    let over = vec![first_byte(first.decision_id, &leaving), end(first.decision_id, &leaving, None)];
    assert_eq!(report(&mut client, over).await, 0);
    assert_eq!(indexer.post(&format!("/undrain?endpoint={leaving}")).await.0, 200);
    assert_eq!(picked(&score(&mut client, 0..1000).await), leaving, "the other one is busy");
    assert_eq!(indexer.post("/drain?endpoint=10.9.9.9:1").await.0, 404);
    indexer.stop().await;
}

/// The end of a request never comes: what it holds ends with its lease, and nothing goes below zero when it comes late.
#[tokio::test]
async fn a_lost_end_is_repaired_by_its_lease() {
    let yaml = format!("{}leases: {{ reservation_ms: 300 }}\n", config(&HOSTS[..1]));
    let indexer = Indexer::start(&yaml).await;
    let mut client = indexer.client().await;
    let answer = score(&mut client, 0..1000).await;
    report(&mut client, vec![first_byte(answer.decision_id, HOSTS[0])]).await;
    assert_eq!(indexer.load(HOSTS[0]).await, (0, 1));
    eventually("the lease ends", async || indexer.load(HOSTS[0]).await == (0, 0)).await;
    assert_eq!(indexer.metric("warmpath_expired_reservations_total").await, 1.0);
    assert_eq!(report(&mut client, vec![end(answer.decision_id, HOSTS[0], None)]).await, 1, "too late");
    assert_eq!(indexer.load(HOSTS[0]).await, (0, 0));
    assert_eq!(indexer.metric("warmpath_ledger_invariant_violations_total").await, 0.0);
    indexer.stop().await;
}

/// Zones and capacities are configured, and terms of the cost.
#[tokio::test]
async fn another_zone_costs_and_a_larger_endpoint_takes_more() {
    let yaml = "listen: { grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }\nmodels: [{ name: tiny }]\n\
        policy: { zone: a, other_zone_tokens: 500 }\n\
        scrape: { interval_ms: 60000, failures_to_avoid: 1000 }\nendpoints:\n  static:\n\
        \x20   - { address: \"10.0.0.1:8000\", zone: a }\n    - { address: \"10.0.0.2:8000\", zone: b }\n\
        \x20   - { address: \"10.0.0.3:8000\", zone: a, capacity: 3 }\n";
    let indexer = Indexer::start(yaml).await;
    let mut client = indexer.client().await;
    let answer = score(&mut client, 0..900).await;
    let terms = |host: &str| {
        let candidate = answer.candidates.iter().find(|candidate| candidate.endpoint == host).unwrap();
        candidate.terms.unwrap()
    };
    let costs = [HOSTS[0], HOSTS[1], HOSTS[2]].map(|host| terms(host).cost.round());
    assert_eq!(costs, [900.0, 1400.0, 300.0]);
    assert_eq!((terms(HOSTS[1]).penalty, terms(HOSTS[2]).capacity), (500.0, 3.0));
    let mut picks: BTreeMap<String, u32> = BTreeMap::new();
    for turn in 1..=100 {
        let answer = score(&mut client, turn * 1000..turn * 1000 + 900).await;
        *picks.entry(picked(&answer)).or_default() += 1;
    }
    let (small, large) = (picks[HOSTS[0]], picks[HOSTS[2]]);
    assert!((small * 2..=small * 4).contains(&large), "{picks:?}");
    indexer.stop().await;
}
