//! Blocks that are not in the main pool, or were stored before anybody listened.

use std::num::NonZeroU32;

use serde_json::json;
use warmpath_kv::native_hash::{NativeAlgorithm, NativeHasher, NativeKeyForm, NativeNamespace, SEED_DEFAULT};
use warmpath_proto::v1::{Outcome, ScoreRequest};

use crate::engine::{BLOCK, Engine};
use crate::http_engine::HttpEngine;
use crate::support::{Indexer, eventually, tokens};

const ENDPOINT: &str = "10.0.0.1:8000";

/// An indexer over one engine, whose speculations end at once.
async fn listening(engine: &Engine, model: &str) -> Indexer {
    let yaml = format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n\
         models: [{{ name: tiny{model} }}]\n\
         scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\n\
         leases: {{ speculative_ms: 10 }}\n\
         endpoints: {{ static: [{{ address: \"{ENDPOINT}\", events: \"{}\" }}] }}\n",
        engine.events
    );
    Indexer::start(&yaml).await
}

async fn cached(indexer: &Indexer, ids: std::ops::Range<u32>) -> u32 {
    let idle = async || indexer.metric("warmpath_index_speculative_blocks").await == 0.0;
    eventually("nothing is speculated on", idle).await;
    let answer = indexer.client().await.score(tokens(ids)).await.unwrap().into_inner();
    assert_eq!(answer.outcome(), Outcome::Scored, "{answer:?}");
    answer.candidates[0].cached_tokens
}

/// vLLM's own hashes of the blocks of these ids.
fn native(ids: std::ops::Range<u32>) -> Vec<u64> {
    let hasher = NativeHasher::new(NativeAlgorithm::Sha256, SEED_DEFAULT, NativeKeyForm::Tagged);
    hashes_by(hasher, &NativeNamespace::default(), ids)
}

fn hashes_by(hasher: NativeHasher, namespace: &NativeNamespace<'_>, ids: std::ops::Range<u32>) -> Vec<u64> {
    let ids: Vec<u32> = ids.collect();
    let size = NonZeroU32::new(BLOCK).unwrap();
    hasher.prompt(namespace, &ids, size).into_iter().map(|hash| hash.0).collect()
}

fn recognitions(result: &str) -> String {
    format!("warmpath_recognitions_total{{result=\"{result}\"}}")
}

#[tokio::test]
async fn what_an_engine_held_before_anybody_listened_is_found_by_its_own_hashes() {
    let mut engine = Engine::start();
    let indexer = listening(&engine, "").await;
    let hashes = native(0..8 * BLOCK);
    engine.store_behind(hashes[3], &hashes[4..], 4 * BLOCK..8 * BLOCK, "GPU");
    let aside = async || indexer.metric("warmpath_index_aside_blocks").await == 4.0;
    eventually("four blocks wait for their parent", aside).await;

    assert_eq!(cached(&indexer, 0..8 * BLOCK + 5).await, 0, "what waits is no hit");
    let recognized = "warmpath_index_admissions_total{cause=\"recognized\"}";
    eventually("the beginning is recognized", async || indexer.metric(recognized).await == 4.0).await;
    assert_eq!(indexer.metric("warmpath_index_attached_total").await, 4.0);
    assert_eq!(indexer.metric("warmpath_index_aside_blocks").await, 0.0);
    assert_eq!(cached(&indexer, 0..8 * BLOCK + 5).await, 8 * BLOCK);
    indexer.stop().await;
}

#[tokio::test]
async fn where_the_algorithm_is_another_one_nothing_is_hashed() {
    let mut engine = Engine::start();
    let indexer = listening(&engine, ", block_hash: { algorithm: none }").await;
    let hashes = native(0..8 * BLOCK);
    engine.store_behind(hashes[3], &hashes[4..], 4 * BLOCK..8 * BLOCK, "GPU");
    let aside = async || indexer.metric("warmpath_index_aside_blocks").await == 4.0;
    eventually("four blocks wait for their parent", aside).await;
    for _ in 0..3 {
        assert_eq!(cached(&indexer, 0..8 * BLOCK + 5).await, 0);
    }
    assert_eq!(indexer.metric("warmpath_index_aside_blocks").await, 4.0);
    assert!(indexer.metric(&recognitions("no_algorithm")).await >= 1.0);
    indexer.stop().await;
}

/// Its seed is random unless it is set, and then it is known.
#[tokio::test]
async fn xxhash_is_computed_where_its_seed_is_known() {
    for (model, seed) in [
        (", block_hash: { algorithm: xxhash_cbor }", None),
        (", block_hash: { algorithm: xxhash_cbor, seed: 7 }", Some("7")),
    ] {
        let mut engine = Engine::start();
        let indexer = listening(&engine, model).await;
        let hasher =
            NativeHasher::new(NativeAlgorithm::XxhashCbor, seed.unwrap_or("0"), NativeKeyForm::Tagged);
        let hashes = hashes_by(hasher, &NativeNamespace::default(), 0..8 * BLOCK);
        engine.store_behind(hashes[3], &hashes[4..], 4 * BLOCK..8 * BLOCK, "GPU");
        let aside = async || indexer.metric("warmpath_index_aside_blocks").await == 4.0;
        eventually("four blocks wait for their parent", aside).await;
        assert_eq!(cached(&indexer, 0..8 * BLOCK + 5).await, 0, "what waits is no hit");
        let result = recognitions(if seed.is_some() { "found" } else { "no_seed" });
        eventually("it was looked for", async || indexer.metric(&result).await >= 1.0).await;
        let expected = if seed.is_some() { 8 * BLOCK } else { 0 };
        assert_eq!(cached(&indexer, 0..8 * BLOCK + 5).await, expected, "{model}");
        indexer.stop().await;
    }
}

/// From vLLM 0.31 on an adapter's folder is part of its hashes, and engines list it.
#[tokio::test]
async fn blocks_of_an_adapter_are_found_where_its_folder_is_known() {
    for lists_it in [true, false] {
        let (mut engine, http) = (Engine::start(), HttpEngine::start().await);
        http.say("/version", json!({ "version": "0.32.0" }));
        if lists_it {
            http.list(&["sql"]);
        }
        let yaml = format!(
            "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n\
             models: [{{ name: tiny, adapters: [sql] }}]\n\
             scrape: {{ interval_ms: 60000, failures_to_avoid: 1000, identity_interval_ms: 20 }}\n\
             leases: {{ speculative_ms: 10 }}\n\
             endpoints: {{ static: [{{ address: \"{}\", events: \"{}\" }}] }}\n",
            http.address, engine.events
        );
        let indexer = Indexer::start(&yaml).await;
        if lists_it {
            let listed = async || indexer.state().await["endpoints"][0]["adapters"] == json!(["sql"]);
            eventually("the engine has said what it has", listed).await;
        }
        let hasher = NativeHasher::new(NativeAlgorithm::Sha256, SEED_DEFAULT, NativeKeyForm::Tagged);
        let namespace = NativeNamespace { lora: Some(("sql", "/loras/sql")), salt: None };
        let hashes = hashes_by(hasher, &namespace, 0..8 * BLOCK);
        engine.store_behind_with("sql", hashes[3], &hashes[4..], 4 * BLOCK..8 * BLOCK);
        let aside = async || indexer.metric("warmpath_index_aside_blocks").await == 4.0;
        eventually("four blocks wait for their parent", aside).await;
        let ask = async || {
            let request = ScoreRequest { model: "sql".into(), ..tokens(0..8 * BLOCK + 5) };
            let answer = indexer.client().await.score(request).await.unwrap().into_inner();
            answer.candidates[0].cached_tokens
        };
        assert_eq!(ask().await, 0, "what waits is no hit");
        let result = recognitions(if lists_it { "found" } else { "no_adapter_path" });
        eventually("it was looked for", async || indexer.metric(&result).await >= 1.0).await;
        let idle = async || indexer.metric("warmpath_index_speculative_blocks").await == 0.0;
        eventually("nothing is speculated on", idle).await;
        assert_eq!(ask().await, if lists_it { 8 * BLOCK } else { 0 });
        indexer.stop().await;
        http.stop().await;
    }
}

#[tokio::test]
async fn blocks_in_a_slower_medium_count_at_their_weight() {
    let mut engine = Engine::start();
    let indexer = listening(&engine, "").await;
    engine.store(0..4 * BLOCK);
    engine.store_behind(u64::from(4 * BLOCK), &[101, 102], 4 * BLOCK..6 * BLOCK, "CPU");
    let slower = "warmpath_index_admissions_total{cause=\"slower\"}";
    eventually("both media are indexed", async || indexer.metric(slower).await == 2.0).await;
    // 64 tokens at hand, and 32 at 0.8.
    assert_eq!(cached(&indexer, 0..6 * BLOCK + 5).await, 64 + 25);
    indexer.stop().await;
}
