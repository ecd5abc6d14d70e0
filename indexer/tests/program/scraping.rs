//! Engines' own metrics, and endpoints that refuse connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::{Indexer, eventually, tokens};

/// An engine that only serves `/metrics`.
struct Metrics {
    address: String,
    running: Arc<AtomicU64>,
    server: JoinHandle<()>,
}

impl Metrics {
    async fn start(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let running = Arc::new(AtomicU64::new(0));
        let shown = running.clone();
        let page = move || async move {
            format!(
                "vllm:num_requests_running{{engine=\"0\"}} {}\nvllm:kv_cache_usage_perc{{engine=\"0\"}} 0.5\n",
                shown.load(Ordering::Relaxed)
            )
        };
        let router = Router::new().route("/metrics", get(page));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, running, server }
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
