//! The HTTP API.

use engine_emulator::{EmulatorConfig, VllmVersion};
use serde_json::{Value, json};

use crate::client::{complete, config, get, post, prompt, send, start};

#[tokio::test(flavor = "multi_thread")]
async fn prompts_of_token_ids_are_served_with_their_hits() {
    let emulator = start(config()).await;
    assert_eq!(complete(&emulator, prompt(1, 40)).await, 0);
    assert_eq!(complete(&emulator, prompt(1, 40)).await, 32);
    assert_eq!(complete(&emulator, prompt(1, 32)).await, 16, "the last block is computed again");
    assert_eq!(
        complete(&emulator, json!([prompt(1, 40), prompt(2, 20)])).await,
        32,
        "several prompts add up"
    );
    let metrics = get(&emulator, "/metrics").await;
    let labels = "{engine=\"0\",model_name=\"tiny\"}";
    for sample in [
        format!("vllm:prefix_cache_queries_total{labels} 172.0"),
        format!("vllm:prefix_cache_hits_total{labels} 80.0"),
        format!("vllm:prompt_tokens_total{labels} 172.0"),
        format!("vllm:generation_tokens_total{labels} 10.0"),
        format!("vllm:num_requests_running{labels} 0.0"),
        format!("vllm:num_requests_waiting{labels} 0.0"),
        format!("vllm:kv_cache_usage_perc{labels} 0.0"),
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"tiny\"} 5".to_owned(),
    ] {
        assert!(metrics.text().lines().any(|line| line == sample), "{sample} in\n{}", metrics.text());
    }
    assert!(metrics.text().contains("vllm:cache_config_info{block_size=\"16\""));
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_prompt_gets_the_same_tokens() {
    let emulator = start(config()).await;
    let body = json!({"prompt": prompt(1, 20), "max_tokens": 3, "n": 2, "return_token_ids": true});
    let first = post(&emulator, "/v1/completions", &body).await.json();
    let second = post(&emulator, "/v1/completions", &body).await.json();
    assert_eq!(first["choices"], second["choices"]);
    let [a, b] = [&first["choices"][0], &first["choices"][1]];
    assert_ne!(a["token_ids"], b["token_ids"], "choices differ");
    assert_eq!(a["token_ids"].as_array().unwrap().len(), 3);
    assert_eq!(a["prompt_token_ids"], prompt(1, 20));
    assert_eq!((&a["text"], &a["finish_reason"]), (&json!(" tok tok tok"), &json!("length")));
    assert_eq!(first["usage"]["prompt_tokens"], 20);
    assert_eq!(first["usage"]["completion_tokens"], 6);
    emulator.stop().await;
}

/// The JSON events of a server-sent stream that ends as it should.
fn events(text: &str) -> Vec<Value> {
    let mut lines: Vec<&str> = text.split("\n\n").filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.pop(), Some("data: [DONE]"));
    lines.iter().map(|line| serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_an_event_per_token_and_its_usage_at_the_end() {
    let emulator = start(config()).await;
    complete(&emulator, prompt(1, 40)).await;
    let mut body =
        json!({"prompt": prompt(1, 40), "max_tokens": 3, "stream": true, "return_token_ids": true});
    let without = post(&emulator, "/v1/completions", &body).await;
    assert_eq!(events(without.text()).len(), 3);
    body["stream_options"] = json!({"include_usage": true});
    let with = post(&emulator, "/v1/completions", &body).await;
    let events = events(with.text());
    assert_eq!(events.len(), 4);
    assert_eq!(events[0]["choices"][0]["prompt_token_ids"], prompt(1, 40));
    assert_eq!(events[0]["choices"][0]["finish_reason"], Value::Null);
    assert_eq!(events[2]["choices"][0]["finish_reason"], "length");
    assert_eq!(events[3]["choices"], json!([]));
    assert_eq!(events[3]["usage"]["prompt_tokens_details"]["cached_tokens"], 32);
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_can_be_served_from_token_ids() {
    let emulator = start(config()).await;
    let body = json!({
        "messages": [], "max_completion_tokens": 2, "stream": true, "return_token_ids": true,
        "kv_transfer_params": {"prompt_token_ids": prompt(3, 20)},
    });
    let answer = post(&emulator, "/v1/chat/completions", &body).await;
    let events = events(answer.text());
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(events[0]["prompt_token_ids"], prompt(3, 20));
    let text: String = events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, " tok tok");
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_get_the_engines_answers() {
    let emulator = start(EmulatorConfig { ranks: 2, loras: vec!["my-lora".into()], ..config() }).await;
    let completion = |extra: Value| {
        let mut body = json!({"prompt": [1, 2, 3], "max_tokens": 1});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    };
    let cases = [
        (json!({"model": "tiny"}), 200, ""),
        (json!({"model": "my-lora"}), 200, ""),
        (json!({"model": "nope"}), 404, "The model `nope` does not exist."),
        (json!({"prompt": "text"}), 400, "no tokenizer is loaded"),
        (json!({"prompt": []}), 400, "prompt is empty"),
        (json!({"prompt": {"a": 1}}), 400, "prompt is not a string"),
        (json!({"prompt": null}), 400, "prompt is missing"),
        (json!({"max_tokens": 0}), 400, "max_tokens is 0"),
        (json!({"max_tokens": 5000}), 400, "exceed the context length of 1008 tokens"),
        (json!({"max_tokens": 9_007_199_254_740_993_u64}), 400, "exceed the context length of 1008 tokens"),
        (json!({"n": 0}), 400, "0 choices"),
        (json!({"cache_salt": ""}), 400, "cache_salt is empty"),
    ];
    for (extra, status, message) in cases {
        let answer = post(&emulator, "/v1/completions", &completion(extra.clone())).await;
        assert_eq!(answer.status, status, "{extra}: {}", answer.text());
        assert!(answer.text().contains(message), "{extra}: {}", answer.text());
    }
    let body = completion(json!({})).to_string();
    for (rank, status) in [("1", 200), ("2", 400), ("-1", 200), ("one", 200)] {
        let headers = [("X-data-parallel-rank", rank)];
        let answer = send(&emulator, "POST", "/v1/completions", &headers, body.as_bytes()).await.unwrap();
        assert_eq!(answer.status, status, "rank {rank}: {}", answer.text());
    }
    let broken = send(&emulator, "POST", "/v1/completions", &[], b"{\"prompt\":").await.unwrap();
    assert_eq!(broken.status, 400);
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_have_caches_of_their_own_and_take_turns() {
    let emulator = start(EmulatorConfig { ranks: 2, ..config() }).await;
    let body = json!({"prompt": prompt(1, 40), "max_tokens": 1}).to_string();
    let mut cached = Vec::new();
    for rank in ["0", "1", "0", "1"] {
        let headers = [("X-data-parallel-rank", rank)];
        let answer = send(&emulator, "POST", "/v1/completions", &headers, body.as_bytes()).await.unwrap();
        cached.push(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap());
    }
    assert_eq!(cached, [0, 0, 32, 32]);
    for family in 2..6 {
        complete(&emulator, prompt(family, 20)).await;
    }
    let finished: Vec<u64> = emulator.state().await.ranks.iter().map(|rank| rank.counters.finished).collect();
    assert_eq!(finished, [4, 4]);
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_endpoints_answer_as_the_engine_does() {
    let emulator = start(EmulatorConfig { loras: vec!["a".into()], ..config() }).await;
    assert_eq!(get(&emulator, "/health").await.status, 200);
    assert_eq!(get(&emulator, "/version").await.json(), json!({"version": "0.32.0"}));
    let models = get(&emulator, "/v1/models").await.json();
    assert_eq!(models["data"][0]["id"], "tiny");
    assert_eq!((&models["data"][1]["id"], &models["data"][1]["parent"]), (&json!("a"), &json!("tiny")));
    assert_eq!(get(&emulator, "/nothing").await.status, 404);
    complete(&emulator, prompt(1, 40)).await;
    assert_eq!(post(&emulator, "/reset_prefix_cache", &json!({})).await.json(), json!({"success": true}));
    assert_eq!(complete(&emulator, prompt(1, 40)).await, 0);
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_says_where_its_ranks_publish_from_0_31_on() {
    let emulator = start(EmulatorConfig { ranks: 2, ..config() }).await;
    let port = |address: &str| address.rsplit(':').next().unwrap().to_owned();
    let sources = get(&emulator, "/kv_event_sources").await.json();
    for (rank, (events, replay)) in
        emulator.addresses().events.iter().zip(&emulator.addresses().replay).enumerate()
    {
        let source = &sources[rank.to_string()];
        assert_eq!(source["endpoint"], format!("tcp://*:{}", port(events)));
        assert_eq!(source["replay_endpoint"], format!("tcp://*:{}", port(replay)));
        assert_eq!((&source["publisher"], &source["topic"]), (&json!("zmq"), &json!("kv@here")));
    }
    assert_eq!(sources.as_object().unwrap().len(), 2);
    emulator.stop().await;
    let older = start(EmulatorConfig { vllm_version: VllmVersion::new(30, 0), ..config() }).await;
    assert_eq!(get(&older, "/kv_event_sources").await.status, 404);
    older.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_sleeps_has_given_its_cache_up_and_says_so() {
    let emulator = start(config()).await;
    let awake = async || {
        let metrics = get(&emulator, "/metrics").await;
        let line = "vllm:engine_sleep_state{engine=\"0\",model_name=\"tiny\",sleep_state=\"awake\"} ";
        metrics.text().lines().find_map(|found| found.strip_prefix(line)).unwrap().to_owned()
    };
    complete(&emulator, prompt(1, 40)).await;
    assert_eq!(awake().await, "1.0");
    assert_eq!(post(&emulator, "/sleep?level=1", &json!({})).await.status, 200);
    assert_eq!(awake().await, "0.0");
    assert_eq!(get(&emulator, "/is_sleeping").await.json(), json!({"is_sleeping": true}));
    assert_eq!(post(&emulator, "/wake_up", &json!({})).await.status, 200);
    assert_eq!(awake().await, "1.0");
    assert_eq!(complete(&emulator, prompt(1, 40)).await, 0);
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_proves_headers_and_bytes() {
    let emulator = start(config()).await;
    let body = b"{ \"prompt\" : [1,2] , \"max_tokens\":1, \"x\": \"\\u00fc\" }";
    let headers = [("x-own", "1"), ("content-type", "application/json")];
    let answer = send(&emulator, "POST", "/v1/completions?a=b", &headers, body).await.unwrap();
    assert_eq!(answer.status, 200);
    get(&emulator, "/metrics").await;
    let log = get(&emulator, "/emulator/requests").await.json();
    assert_eq!(log.as_array().unwrap().len(), 1, "probes and scrapes are not logged");
    assert_eq!((&log[0]["method"], &log[0]["target"]), (&json!("POST"), &json!("/v1/completions?a=b")));
    assert!(log[0]["headers"].as_array().unwrap().contains(&json!(["x-own", "1"])));
    assert_eq!(log[0]["body_len"], body.len());
    // The digest of these bytes as other tools give it.
    assert_eq!(log[0]["body_sha256"], SHA256);
    assert_eq!(send(&emulator, "DELETE", "/emulator/requests", &[], b"").await.unwrap().status, 204);
    assert!(emulator.requests().is_empty());
    emulator.stop().await;
}

const SHA256: &str = "229ec1010b4bf58f10f7cf1e3f6d51481d3655e5b84a21b45d2e01f31505a42b";
