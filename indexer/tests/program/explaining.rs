//! Receipts and explanations.

use serde_json::{Value, json};
use warmpath_proto::v1::ScoreRequest;

use crate::engine::Engine;
use crate::support::{Indexer, config, end, eventually, first_byte, report, tokens};

async fn receipts(indexer: &Indexer, query: &str) -> Vec<Value> {
    serde_json::from_str(&indexer.get(&format!("/receipts{query}")).await.1).unwrap()
}

#[tokio::test]
async fn a_receipt_tells_what_a_decision_went_by_and_what_became_of_it() {
    let indexer = Indexer::start(&config(&["10.0.0.1:8000", "10.0.0.2:8000"])).await;
    let mut client = indexer.client().await;
    let answer = client.score(tokens(0..1000)).await.unwrap().into_inner();
    let (first, second) = (&answer.candidates[0].endpoint, &answer.candidates[1].endpoint);
    let id = format!("{:016x}", answer.decision_id);

    let [receipt] = &receipts(&indexer, &format!("?decision={id}")).await[..] else { panic!("one") };
    let facts = ["model", "policy", "outcome", "reason"].map(|key| receipt[key].as_str().unwrap());
    assert_eq!(facts, ["tiny", "cost", "load_only", "no_events"]);
    assert_eq!((&receipt["policy_from"], &receipt["split_percent"]), (&json!("configuration"), &Value::Null));
    let weights = json!({
        "lambda": 4.0, "mu_tokens": 50.0, "memory": 1.0, "behind": 0.5, "recent": 0.0, "agree": 8.0,
    });
    assert_eq!(receipt["weights"], weights);
    assert_eq!((&receipt["prompt_tokens"], &receipt["candidates_considered"]), (&json!(1000), &json!(2)));
    let reserved =
        json!({ "endpoint": first, "rank": 0, "queued_tokens": 1000, "sequences": 1, "lease_ms": 30000 });
    assert_eq!(receipt["reserved"], reserved);
    let candidate = &receipt["candidates"][0];
    assert_eq!((&candidate["endpoint"], &candidate["cost"]), (&json!(first), &json!(1000.0)));
    assert_eq!((&candidate["uncached_tokens"], &candidate["trust"]), (&json!(1000), &Value::Null));
    assert_eq!((&receipt["fate"]["endpoint"], &receipt["fate"]["is_over"]), (&Value::Null, &json!(false)));

    // The proxy went on to the second.
    report(
        &mut client,
        vec![first_byte(answer.decision_id, second), end(answer.decision_id, second, Some(48))],
    )
    .await;
    let [receipt] = &receipts(&indexer, &format!("?endpoint={second}")).await[..] else { panic!("one") };
    let fate = &receipt["fate"];
    assert_eq!(
        (&fate["endpoint"], &fate["http_status"], &fate["is_over"]),
        (&json!(second), &json!(200), &json!(true))
    );
    assert_eq!(
        (&fate["ttft_ms"], &fate["whole_ms"], &fate["cached_tokens"]),
        (&json!(120.0), &json!(500.0), &json!(48))
    );
    indexer.stop().await;
}

#[tokio::test]
async fn the_newest_are_kept() {
    let yaml = format!("{}receipts: {{ keep: 3 }}\n", config(&["10.0.0.1:8000"]));
    let indexer = Indexer::start(&yaml).await;
    let mut client = indexer.client().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        let answer = client.score(tokens(0..10)).await.unwrap().into_inner();
        ids.push(format!("{:016x}", answer.decision_id));
    }
    let kept = receipts(&indexer, "").await;
    let kept: Vec<&str> = kept.iter().map(|receipt| receipt["decision"].as_str().unwrap()).collect();
    ids.reverse();
    assert_eq!(kept, ids[..3]);
    assert_eq!(receipts(&indexer, "?limit=1").await.len(), 1);
    indexer.stop().await;
}

/// An explanation is what a decision would be, with the holders of the prompt; and it leaves no trace.
#[tokio::test]
async fn an_explanation_says_what_would_be_decided_and_changes_nothing() {
    let (mut holder, other) = (Engine::start(), Engine::start());
    let yaml = format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\nmodels: [{{ name: tiny }}]\n\
         scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\nendpoints:\n  static:\n\
         \x20   - {{ address: \"10.0.0.1:8000\", events: \"{}\" }}\n    - {{ address: \"10.0.0.2:8000\", events: \"{}\" }}\n",
        holder.events, other.events,
    );
    let indexer = Indexer::start(&yaml).await;
    holder.store(0..64);
    let body = json!({ "model": "tiny", "prompt": (0..100).collect::<Vec<u32>>() }).to_string();
    let explain =
        async |query: &str| indexer.post_body(&format!("/explain?path=/v1/completions{query}"), &body).await;
    eventually("the events are read", async || {
        let (_, told) = explain("").await;
        serde_json::from_str::<Value>(&told).unwrap()["reachable_tokens"] == 64
    })
    .await;
    let told: Value = serde_json::from_str(&explain("").await.1).unwrap();
    assert_eq!(
        (&told["decision"], &told["reserved"], &told["outcome"]),
        (&Value::Null, &Value::Null, &json!("scored"))
    );
    let best = &told["candidates"][0];
    assert_eq!((&best["endpoint"], &best["cached_tokens"]), (&json!("10.0.0.1:8000"), &json!(64)));
    assert_eq!(told["candidates"][1]["duplicated_tokens"], 64);
    assert_eq!(indexer.load("10.0.0.1:8000").await, (0, 0));
    assert_eq!(receipts(&indexer, "").await.len(), 0);
    assert_eq!(indexer.metric("warmpath_index_admissions_total{cause=\"speculative\"}").await, 0.0);

    // The real one is the same.
    let request = ScoreRequest { ..tokens(0..100) };
    let answer = indexer.client().await.score(request).await.unwrap().into_inner();
    assert_eq!(
        (answer.candidates[0].endpoint.as_str(), answer.candidates[0].cached_tokens),
        ("10.0.0.1:8000", 64)
    );

    let (_, by_turn) = explain("&policy=round_robin").await;
    assert!(by_turn.contains("\"policy\":\"round_robin\""), "{by_turn}");
    assert_eq!(explain("&policy=fastest").await.0, 400);
    assert_eq!(indexer.post_body("/explain?path=/v1/models", &body).await.0, 422);
    assert_eq!(indexer.post_body("/explain?path=/v1/completions", "no JSON").await.0, 422);
    indexer.stop().await;
}
