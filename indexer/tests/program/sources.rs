//! Event streams that are configured and say nothing.

use serde_json::{Value, json};
use warmpath_proto::v1::End;

use crate::engine::{BLOCK, Engine};
use crate::http_engine::HttpEngine;
use crate::support::{Indexer, end_with, eventually, report, tokens};

/// Three engines, of which one has no publisher.
#[tokio::test]
async fn a_source_that_is_missing_is_counted() {
    let mut engines = [Engine::start(), Engine::start()];
    let sources = [engines[0].events.clone(), engines[1].events.clone(), "tcp://127.0.0.1:1".to_owned()];
    let endpoints: Vec<String> = (1..)
        .zip(&sources)
        .map(|(host, events)| format!("    - {{ address: \"10.0.0.{host}:8000\", events: \"{events}\" }}\n"))
        .collect();
    let yaml = format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n\
         models: [{{ name: tiny }}]\n\
         scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\n\
         lifecycle: {{ warmup_ms: 1 }}\n\
         endpoints:\n  static:\n{}",
        endpoints.concat()
    );
    let indexer = Indexer::start(&yaml).await;
    engines.iter_mut().for_each(|engine| engine.store(0..160));
    eventually("one is missing", async || indexer.metric("warmpath_kv_sources_missing").await == 1.0).await;
    let silent = "warmpath_kv_trust{endpoint=\"10.0.0.3:8000\",rank=\"0\",trust=\"silent\"}";
    assert_eq!(indexer.metric(silent).await, 1.0);
    let (status, page) = indexer.get("/readyz").await;
    let page: Value = serde_json::from_str(&page).unwrap();
    let degraded = json!(["KV events of 10.0.0.3:8000/0: nothing was ever heard"]);
    assert_eq!((status, &page["ready"], &page["degraded"]), (200, &json!(true), &degraded));
    indexer.stop().await;
}

fn config(endpoint: &str, more: &str) -> String {
    format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n\
         models: [{{ name: tiny }}]\n\
         scrape: {{ interval_ms: 20, identity_interval_ms: 20, failures_to_avoid: 1000 }}\n\
         lifecycle: {{ warmup_ms: 1 }}\n\
         leases: {{ speculative_ms: 10 }}\n\
         endpoints: {{ static: [{{ address: \"{endpoint}\", {more} }}] }}\n"
    )
}

const HELD: &str = "warmpath_index_references";

/// C2, C11: its cache was emptied in a way that tells nobody, and its publisher is dead. Its answers say so.
#[tokio::test]
async fn an_engine_that_computes_blocks_and_tells_of_none_is_not_believed_any_more() {
    let mut engine = Engine::start();
    let endpoint = "10.0.0.1:8000";
    let indexer = Indexer::start(&config(endpoint, &format!("events: \"{}\"", engine.events))).await;
    engine.store(0..10 * BLOCK);
    eventually("it holds ten blocks", async || indexer.metric(HELD).await == 10.0).await;
    let mut client = indexer.client().await;
    let mut number = 0;
    eventually("what it told is dropped", async || {
        // Each is answered at once, with nothing found in the cache.
        number += 1000;
        let answer = client.score(tokens(number..number + 100)).await.unwrap().into_inner();
        let told = End {
            endpoint: endpoint.into(),
            prompt_tokens: Some(100),
            cached_tokens: Some(0),
            ..End::default()
        };
        report(&mut client, vec![end_with(answer.decision_id, told)]).await;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        indexer.metric(HELD).await == 0.0
    })
    .await;
    assert_eq!(indexer.metric("warmpath_kv_streams_contradicted_total").await, 1.0);
    assert_eq!(indexer.metric("warmpath_kv_sources_missing").await, 1.0);
    // The index is emptied first, and the stream's standing told after it.
    let standing = async || {
        let stream = indexer.state().await["endpoints"][0]["ranks"][0]["stream"].clone();
        (stream["trust"].clone(), stream["reason"].clone())
    };
    let contradicted = (json!("degraded"), json!("contradicted"));
    eventually("it is contradicted", async || standing().await == contradicted).await;

    // What it tells from then on is true.
    engine.store(5000..5000 + 3 * BLOCK);
    eventually("it holds three blocks", async || indexer.metric(HELD).await == 3.0).await;
    let none_missing = async || indexer.metric("warmpath_kv_sources_missing").await == 0.0;
    eventually("it is not missing any more", none_missing).await;
    engine.clear();
    let trust = async || indexer.state().await["endpoints"][0]["ranks"][0]["stream"]["trust"].clone();
    eventually("its cache is known", async || trust().await == "live").await;
    indexer.stop().await;
}

/// C2: an engine that sleeps has given its cache up, and says so in its metrics alone.
#[tokio::test]
async fn an_engine_that_sleeps_is_believed_to_be_empty() {
    let (mut engine, http) = (Engine::start(), HttpEngine::start().await);
    let awake = |awake: u8| {
        format!(
            "vllm:engine_sleep_state{{engine=\"0\",model_name=\"tiny\",sleep_state=\"awake\"}} {awake}.0\n"
        )
    };
    http.say_text("/metrics", awake(1));
    let indexer = Indexer::start(&config(&http.address, &format!("events: \"{}\"", engine.events))).await;
    engine.store(0..10 * BLOCK);
    eventually("it holds ten blocks", async || indexer.metric(HELD).await == 10.0).await;
    http.say_text("/metrics", awake(0));
    eventually("it holds nothing", async || indexer.metric(HELD).await == 0.0).await;
    let trust = indexer.state().await["endpoints"][0]["ranks"][0]["stream"]["trust"].clone();
    assert_eq!(trust, "live", "it is known to be empty");
    http.say_text("/metrics", awake(1));
    // A scrape from before may still be on its way.
    eventually("it holds two blocks", async || {
        engine.store(0..2 * BLOCK);
        indexer.metric(HELD).await == 2.0
    })
    .await;
    indexer.stop().await;
    http.stop().await;
}

/// The engine says how many ranks it has and where they publish, and where it cannot, what is configured counts.
#[tokio::test]
async fn c39_an_engine_s_ranks_are_found_where_it_says() {
    let (mut engines, http) = ([Engine::start(), Engine::start()], HttpEngine::start().await);
    let source = |engine: &Engine| {
        let port = engine.events.rsplit(':').next().unwrap();
        json!({ "publisher": "zmq", "endpoint": format!("tcp://*:{port}"), "replay_endpoint": null, "topic": "" })
    };
    let sources = json!({ "0": source(&engines[0]), "1": source(&engines[1]) });
    let indexer = Indexer::start(&config(&http.address, "rank_ports: engine")).await;
    let ranks = async || indexer.state().await["endpoints"][0]["ranks"].as_array().unwrap().len();
    let unreadable = "warmpath_engine_questions_total{question=\"kv_event_sources\",result=\"unreadable\"}";
    eventually("it was asked, in vain", async || indexer.metric(unreadable).await >= 1.0).await;
    assert_eq!(ranks().await, 1);
    http.say("/kv_event_sources", sources);
    eventually("both ranks are known", async || ranks().await == 2).await;
    engines[0].store(0..10 * BLOCK);
    engines[1].store(0..4 * BLOCK);
    eventually("both are followed", async || indexer.metric(HELD).await == 14.0).await;
    let changes = "warmpath_endpoint_changes_total{result=\"added\"}";
    assert_eq!(indexer.metric(changes).await, 2.0, "once as configured, once as told");
    indexer.stop().await;
    http.stop().await;
}
