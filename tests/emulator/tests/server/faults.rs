//! Ordered misbehaviour.

use std::time::Duration;

use engine_emulator::{Emulator, EventOrder, FaultOrder, HttpOrder};
use serde_json::{Value, json};

use crate::client::{Subscriber, complete, config, get, post, prompt, replay, send, start};

async fn order(emulator: &Emulator, order: Value) {
    let answer = post(emulator, "/emulator/faults", &order).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Publishes `count` batches under an order and gives the numbers that a subscriber sees.
async fn seen(events: Value, count: u32, expected: usize) -> (Vec<u64>, Vec<u64>) {
    let emulator = start(config()).await;
    let subscriber = Subscriber::connect(&emulator, 0);
    order(&emulator, json!({"events": events})).await;
    for family in 1..=count {
        complete(&emulator, prompt(family, 20)).await;
    }
    let numbers = (0..expected).map(|_| subscriber.next().number).collect();
    assert_eq!(subscriber.within(Duration::from_millis(50)), None);
    let answers = replay(&emulator, 0, 0);
    let kept = answers.iter().map(|answer| u64::from_be_bytes(answer[1].clone().try_into().unwrap()));
    let kept = kept.filter(|number| *number != u64::MAX).collect();
    emulator.stop().await;
    (numbers, kept)
}

#[tokio::test(flavor = "multi_thread")]
async fn event_streams_misbehave_as_ordered() {
    assert_eq!(seen(json!({"drop": 1}), 3, 2).await, (vec![1, 2], vec![0, 1, 2]));
    assert_eq!(seen(json!({"lose": 1}), 3, 2).await, (vec![1, 2], vec![1, 2]));
    assert_eq!(seen(json!({"duplicate": 1}), 2, 3).await, (vec![0, 0, 1], vec![0, 1]));
    assert_eq!(seen(json!({"reorder": 1}), 2, 2).await, (vec![1, 0], vec![0, 1]));
    assert_eq!(seen(json!({"delay": {"batches": 1, "ms": 100}}), 2, 2).await, (vec![0, 1], vec![0, 1]));
    assert_eq!(seen(json!({"silent": true}), 2, 0).await, (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_resets_hit_that_many_requests() {
    let emulator = start(config()).await;
    order(&emulator, json!({"http": {"reset": 1, "error": {"status": 503, "next": 2}}})).await;
    let body = json!({"prompt": [1], "max_tokens": 1}).to_string();
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        assert_eq!(get(&emulator, "/health").await.status, 200, "probes use up nothing");
        let answer = send(&emulator, "POST", "/v1/completions", &[], body.as_bytes()).await;
        outcomes.push(answer.ok().map(|answer| answer.status));
    }
    assert_eq!(outcomes, [None, Some(503), Some(503), Some(200)]);
    assert_eq!(emulator.requests().len(), 4, "all of them arrived");
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_server_answers_only_its_controls() {
    let emulator = start(config()).await;
    let http = HttpOrder { hang: Some(true), ..HttpOrder::default() };
    emulator.inject(&FaultOrder { http: Some(http), ..FaultOrder::default() }).await.unwrap();
    for path in ["/health", "/metrics"] {
        let answer = tokio::time::timeout(Duration::from_millis(100), get(&emulator, path)).await;
        assert!(answer.is_err(), "{path} answered");
    }
    order(&emulator, json!({"http": {"hang": false}})).await;
    assert_eq!(get(&emulator, "/health").await.status, 200);
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_server_takes_its_time() {
    let emulator = start(config()).await;
    let timed = async |family| {
        let start = std::time::Instant::now();
        complete(&emulator, prompt(family, 500)).await;
        start.elapsed()
    };
    let normal = timed(1).await;
    order(&emulator, json!({"slow": 100.0})).await;
    let slow = timed(2).await;
    // 500 tokens take 97 ms of the engine's time: 1 ms here, then 97 ms.
    assert!(slow > Duration::from_millis(90), "{normal:?}, then {slow:?}");
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_order_is_refused_as_a_whole() {
    let emulator = start(config()).await;
    let bad = json!({"slow": 2.0, "events": {"rank": 7}});
    let answer = post(&emulator, "/emulator/faults", &bad).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("events.rank is 7"), "{}", answer.text());
    let unknown = post(&emulator, "/emulator/faults", &json!({"restrt": {}})).await;
    assert_eq!(unknown.status, 400);
    assert_eq!(get(&emulator, "/emulator/faults").await.json()["slow"], 1.0);
    let events = EventOrder { rank: Some(7), ..EventOrder::default() };
    assert!(emulator.inject(&FaultOrder { events: Some(events), ..FaultOrder::default() }).await.is_err());
    emulator.stop().await;
}
