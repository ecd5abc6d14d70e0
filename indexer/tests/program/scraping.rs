//! Engines' own metrics, and endpoints that refuse connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::routing::get;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use warmpath_proto::v1::{End, ScoreRequest};

use crate::support::{Indexer, end_with, eventually, first_byte, report, tokens};

/// An engine that only serves `/metrics`.
struct Metrics {
    address: String,
    running: Arc<AtomicU64>,
    /// In place of the page, where it is not empty.
    page: Arc<Mutex<&'static str>>,
    server: JoinHandle<()>,
}

impl Metrics {
    async fn start(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let running = Arc::new(AtomicU64::new(0));
        let (shown, page) = (running.clone(), Arc::<Mutex<&'static str>>::default());
        let other = page.clone();
        let serve = move || async move {
            let other = *other.lock();
            if !other.is_empty() {
                return other.to_owned();
            }
            format!(
                "vllm:num_requests_running{{engine=\"0\"}} {}\nvllm:kv_cache_usage_perc{{engine=\"0\"}} 0.5\n",
                shown.load(Ordering::Relaxed)
            )
        };
        let router = Router::new().route("/metrics", get(serve));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, running, page, server }
    }

    async fn stop(self) -> String {
        self.server.abort();
        let _cancelled = self.server.await;
        self.address
    }
}

fn config(endpoints: &[&str]) -> String {
    let endpoints: String =
        endpoints.iter().map(|address| format!("    - {{ address: \"{address}\" }}\n")).collect();
    format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\nmodels: [{{ name: tiny }}]\n\
         scrape: {{ interval_ms: 20, timeout_ms: 200, failures_to_avoid: 3 }}\nendpoints:\n  static:\n{endpoints}"
    )
}

#[tokio::test]
async fn sequences_of_others_count_and_our_own_count_once() {
    let (busy, idle) = (Metrics::start("127.0.0.1:0").await, Metrics::start("127.0.0.1:0").await);
    busy.running.store(30, Ordering::Relaxed);
    let indexer = Indexer::start(&config(&[&busy.address, &idle.address])).await;
    eventually("both are scraped", async || {
        let state = indexer.state().await;
        let ranks = state["endpoints"].as_array().unwrap().iter();
        ranks.filter(|endpoint| !endpoint["ranks"][0]["engine"].is_null()).count() == 2
    })
    .await;
    let mut client = indexer.client().await;
    let answer = client.score(tokens(0..100)).await.unwrap().into_inner();
    let [best, other] = &answer.candidates[..] else { panic!("two candidates") };
    assert_eq!(best.endpoint, idle.address);
    let terms = other.terms.as_ref().unwrap();
    assert_eq!((terms.active_sequences, terms.pressure), (30, 0.5));

    // The engine now reports our request too: it is no other's.
    idle.running.store(1, Ordering::Relaxed);
    eventually("the engine reports it", async || {
        let state = indexer.state().await;
        let mut endpoints = state["endpoints"].as_array().unwrap().iter();
        let rank = &endpoints.find(|endpoint| endpoint["endpoint"] == *idle.address).unwrap()["ranks"][0];
        rank["engine"]["running"] == 1 && rank["engine"]["foreign_sequences"] == 0
    })
    .await;
    indexer.stop().await;
    busy.stop().await;
    idle.stop().await;
}

/// An endpoint that comes to a busy fleet is unknown, not unwanted: the next request goes there, and then no more than its
/// age allows, until it takes as much as the others.
// D13 (higress-group/higress#3255), D38 (istio/istio#42236)
#[tokio::test]
async fn a_new_endpoint_gets_its_first_request_at_once_and_its_share_in_time() {
    let (old, late) = (Metrics::start("127.0.0.1:0").await, Metrics::start("127.0.0.1:0").await);
    let (old_name, new_name) = (old.address.clone(), late.stop().await);
    let yaml = config(&[&old_name, &new_name]) + "policy: { slow_start_ms: 1500 }\n";
    let indexer = Indexer::start(&yaml).await;
    let mut client = indexer.client().await;
    let usable = format!("warmpath_endpoint_usable{{endpoint=\"{new_name}\"}}");
    eventually("nobody is there yet", async || indexer.metric(&usable).await == 0.0).await;
    // Youth is relative: the other one must be old.
    let ramp = |name: &str| format!("warmpath_endpoint_ramp{{endpoint=\"{name}\"}}");
    let ramp_of_old = ramp(&old_name);
    eventually("the other one is old", async || indexer.metric(&ramp_of_old).await == 1.0).await;
    let mut number = 0;
    // Every request reaches its first token and stays open.
    let mut next = async || {
        number += 1;
        let answer = client.score(tokens(number * 1000..number * 1000 + 500)).await.unwrap().into_inner();
        let endpoint = answer.candidates[0].endpoint.clone();
        report(&mut client, vec![first_byte(answer.decision_id, &endpoint)]).await;
        endpoint
    };
    for _ in 0..40 {
        assert_eq!(next().await, old_name);
    }
    let new = Metrics::start(&new_name).await;
    eventually("it is there", async || indexer.metric(&usable).await == 1.0).await;
    assert_eq!(next().await, new_name);
    for _ in 0..10 {
        next().await;
    }
    let ramp = ramp(&new_name);
    let (_, young) = indexer.load(&new_name).await;
    let age = indexer.metric(&ramp).await;
    // Its sequences count for 1 / ramp: it has at most that share of what the other carries, and the one before.
    let limit = (age * 51.0).ceil() as u64 + 1;
    assert!((1..=limit).contains(&young), "{young} of at most {limit} at {age}");
    eventually("it is as old as the others", async || indexer.metric(&ramp).await == 1.0).await;
    for _ in 0..70 {
        next().await;
    }
    let (_, share) = indexer.load(&new_name).await;
    let (_, others) = indexer.load(&old_name).await;
    assert!(share.abs_diff(others) <= 1, "{share} and {others}");
    indexer.stop().await;
    old.stop().await;
    new.stop().await;
}

/// Figures that are too old are left out, our own count stays, and nobody waits for them.
// D5 (llm-d/llm-d-router#2408)
#[tokio::test]
async fn engines_whose_metrics_stop_are_ranked_by_our_own_count() {
    let (busy, idle) = (Metrics::start("127.0.0.1:0").await, Metrics::start("127.0.0.1:0").await);
    busy.running.store(30, Ordering::Relaxed);
    let names = [busy.address.clone(), idle.address.clone()];
    let indexer = Indexer::start(&config(&[&busy.address, &idle.address])).await;
    let stale = async || {
        let of = async |name: &String| {
            indexer.metric(&format!("warmpath_endpoint_figures_stale{{endpoint=\"{name}\"}}")).await
        };
        of(&names[0]).await + of(&names[1]).await
    };
    eventually("both are scraped", async || stale().await == 0.0).await;
    // They hang up: refused often enough to be avoided, both, so both are used.
    busy.stop().await;
    idle.stop().await;
    eventually("their figures are too old", async || stale().await == 2.0).await;
    let mut client = indexer.client().await;
    for turn in 1..=20u32 {
        let answer = client.score(tokens(turn * 1000..turn * 1000 + 500)).await.unwrap().into_inner();
        let terms: Vec<_> = answer.candidates.iter().map(|c| c.terms.unwrap().active_sequences).collect();
        assert_eq!(terms.iter().sum::<u32>(), turn - 1, "only our own");
    }
    for name in &names {
        assert_eq!(indexer.load(name).await, (5000, 10));
    }
    indexer.stop().await;
}

/// Engines that take a connection and say nothing, as frozen ones do, are waited for by nobody else.
#[tokio::test]
async fn engines_that_hang_keep_no_other_s_figures_from_being_read() {
    let engine = Metrics::start("127.0.0.1:0").await;
    let mut hanging = Vec::new();
    for _ in 0..40 {
        hanging.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let addresses: Vec<String> =
        hanging.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
    let mut all: Vec<&str> = addresses.iter().map(String::as_str).collect();
    all.push(&engine.address);
    let indexer = Indexer::start(&config(&all).replace("timeout_ms: 200", "timeout_ms: 600000")).await;
    let answered = "warmpath_engine_scrapes_total{result=\"answered\"}";
    eventually("it is read again and again", async || indexer.metric(answered).await >= 5.0).await;
    assert_eq!(indexer.metric("warmpath_engine_scrapes_total{result=\"silent\"}").await, 0.0);
    indexer.stop().await;
    engine.stop().await;
}

/// Engines of two kinds with full memory: what they have no room for is waited for there, so the request goes to the one
/// that has room, busy as it is.
#[tokio::test]
async fn memory_that_is_full_is_waited_for() {
    let [vllm, sglang, roomy] = [(); 3].map(|()| Metrics::start("127.0.0.1:0"));
    let (vllm, sglang, roomy) = (vllm.await, sglang.await, roomy.await);
    *vllm.page.lock() = "vllm:num_requests_running{engine=\"0\"} 0\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.99\n\
        vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"1000\"} 1.0\n";
    *sglang.page.lock() = "sglang:num_running_reqs{model_name=\"m\"} 0\nsglang:token_usage{model_name=\"m\"} 0.9\n\
        sglang:max_total_num_tokens{model_name=\"m\"} 1000\n";
    *roomy.page.lock() = "vllm:num_requests_running{engine=\"0\"} 15\nvllm:gpu_cache_usage_perc{engine=\"0\"} 0.5\n\
        vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"1000\"} 1.0\n";
    let indexer = Indexer::start(&config(&[&vllm.address, &sglang.address, &roomy.address])).await;
    eventually("all are scraped", async || {
        let state = indexer.state().await;
        state["endpoints"].as_array().unwrap().iter().all(|e| e["ranks"][0]["engine"]["room_tokens"].is_u64())
    })
    .await;
    let mut client = indexer.client().await;
    let answer = client.score(tokens(0..1000)).await.unwrap().into_inner();
    assert_eq!(answer.candidates[0].endpoint, roomy.address);
    let missing = |address: &str| {
        let candidate = answer.candidates.iter().find(|candidate| candidate.endpoint == address).unwrap();
        candidate.terms.unwrap().missing_tokens
    };
    let all = [&vllm, &sglang, &roomy].map(|engine| missing(&engine.address));
    assert_eq!(all, [840, 900, 0]);

    // An answer of 300 tokens teaches what the next will probably need.
    let end = End { completion_tokens: Some(300), endpoint: roomy.address.clone(), ..End::default() };
    report(
        &mut client,
        vec![first_byte(answer.decision_id, &roomy.address), end_with(answer.decision_id, end)],
    )
    .await;
    let expecting = async |max_output_tokens| {
        let request = ScoreRequest { max_output_tokens, ..tokens(0..1000) };
        let answer = client.clone().score(request).await.unwrap().into_inner();
        let of_vllm = answer.candidates.iter().find(|candidate| candidate.endpoint == vllm.address).unwrap();
        of_vllm.terms.unwrap().missing_tokens
    };
    assert_eq!((expecting(0).await, expecting(100).await), (1140, 940));
    indexer.stop().await;
    for engine in [vllm, sglang, roomy] {
        engine.stop().await;
    }
}

/// A dead endpoint is avoided after some refusals and used at its first answer; when all are dead, all are used.
#[tokio::test]
async fn endpoints_that_refuse_connections_are_avoided_until_they_answer() {
    let (first, second) = (Metrics::start("127.0.0.1:0").await, Metrics::start("127.0.0.1:0").await);
    let (live, dying) = (first.address.clone(), second.address.clone());
    let indexer = Indexer::start(&config(&[&live, &dying])).await;
    let mut client = indexer.client().await;
    let mut known = async || -> Vec<String> {
        let answer = client.score(tokens(0..10)).await.unwrap().into_inner();
        let mut names: Vec<_> = answer.candidates.into_iter().map(|candidate| candidate.endpoint).collect();
        names.sort_unstable();
        names
    };
    let mut both = vec![live.clone(), dying.clone()];
    both.sort_unstable();
    assert_eq!(known().await, both);
    second.stop().await;
    eventually("the dead one is avoided", async || known().await == [live.clone()]).await;
    first.stop().await;
    eventually("all dead: all used", async || known().await == both).await;
    let back = Metrics::start(&dying).await;
    eventually("one is back", async || known().await == [dying.clone()]).await;
    indexer.stop().await;
    back.stop().await;
}

/// Endpoints behind a name: every address it resolves to, each with the port that is configured.
#[tokio::test]
async fn endpoints_behind_a_name_are_found() {
    let engine = Metrics::start("127.0.0.1:0").await;
    let port = engine.address.rsplit(':').next().unwrap();
    let yaml = format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\nmodels: [{{ name: tiny }}]\n\
         endpoints: {{ dns: [{{ name: localhost, port: {port}, refresh_ms: 50 }}] }}\n"
    );
    let indexer = Indexer::start(&yaml).await;
    let known = async || indexer.loads().await.iter().any(|(name, _, _)| *name == engine.address);
    eventually("the name is looked up", known).await;
    let before = indexer.state().await["endpoints_version"].clone();
    let lookups = "warmpath_dns_lookups_total{result=\"ok\"}";
    eventually("and again", async || indexer.metric(lookups).await >= 3.0).await;
    assert_eq!(indexer.state().await["endpoints_version"], before, "the same answer changes nothing");
    assert_eq!(indexer.metric("warmpath_endpoint_changes_total{result=\"removed\"}").await, 0.0);
    indexer.stop().await;
    engine.stop().await;
}
