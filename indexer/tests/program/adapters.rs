//! LoRA adapters: which name means which base, whose blocks count, and which endpoints are asked.

use serde_json::{Value, json};
use warmpath_proto::v1::{Outcome, ScoreRequest, ScoreResponse};

use crate::engine::{BLOCK, Engine};
use crate::http_engine::HttpEngine;
use crate::support::{Indexer, eventually, tokens};

fn config(models: &str, endpoints: &str) -> String {
    format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n\
         models: [{models}]\n\
         scrape: {{ interval_ms: 60000, failures_to_avoid: 1000, identity_interval_ms: 20 }}\n\
         endpoints:\n  static:\n{endpoints}"
    )
}

async fn ask(indexer: &Indexer, model: &str) -> ScoreResponse {
    let request = ScoreRequest { model: model.into(), ..tokens(0..10 * BLOCK + 1) };
    indexer.client().await.score(request).await.unwrap().into_inner()
}

fn endpoints(answer: &ScoreResponse) -> Vec<&str> {
    let mut endpoints: Vec<&str> =
        answer.candidates.iter().map(|candidate| candidate.endpoint.as_str()).collect();
    endpoints.sort_unstable();
    endpoints
}

/// Blocks that were computed with an adapter are no blocks of the base, nor of another adapter, and the other way round.
#[tokio::test]
async fn an_adapter_s_blocks_are_a_namespace_of_their_own() {
    let (mut first, mut second) = (Engine::start(), Engine::start());
    let yaml = config(
        "{ name: tiny, aliases: [other-name], adapters: [sql, chat] }",
        &format!(
            "    - {{ address: \"10.0.0.1:8000\", events: \"{}\" }}\n    - {{ address: \"10.0.0.2:8000\", events: \"{}\" }}\n",
            first.events, second.events
        ),
    );
    let indexer = Indexer::start(&yaml).await;
    first.store_with(Some("sql"), 0..10 * BLOCK);
    second.store(0..10 * BLOCK);
    eventually("events are indexed", async || indexer.state().await["index"]["blocks"] == 20).await;
    let cases = [
        ("sql", Some("10.0.0.1:8000")),
        ("tiny", Some("10.0.0.2:8000")),
        ("other-name", Some("10.0.0.2:8000")),
        ("chat", None),
    ];
    for (model, holder) in cases {
        // Under a policy that goes by hits alone; what is picked speculates on blocks in its own namespace only.
        let answer = ask(&indexer, model).await;
        assert_eq!(answer.outcome(), Outcome::Scored, "{model}: {}", answer.reason);
        match holder {
            Some(holder) => {
                let best = &answer.candidates[0];
                assert_eq!((best.endpoint.as_str(), best.cached_tokens), (holder, 10 * BLOCK), "{model}");
            }
            None => assert_eq!(answer.reachable_tokens, 0, "{model}"),
        }
    }
    indexer.stop().await;
}

/// An engine that lists an adapter gets its requests; one that does not has to load it first, or refuses.
#[tokio::test]
async fn adapters_that_engines_list_are_known_and_asked_for_where_they_are() {
    let (first, second) = (HttpEngine::start().await, HttpEngine::start().await);
    first.list(&["sql"]);
    second.list(&[]);
    let lines = [&first, &second].map(|engine| format!("    - {{ address: \"{}\" }}\n", engine.address));
    let indexer = Indexer::start(&config("{ name: tiny, adapters: [chat] }", &lines.concat())).await;
    let adapters = async |engine: &HttpEngine| -> Value {
        let state = indexer.state().await;
        let mut endpoints = state["endpoints"].as_array().unwrap().iter();
        endpoints.find(|endpoint| endpoint["endpoint"] == *engine.address).unwrap()["adapters"].clone()
    };
    let both_are_known =
        async || adapters(&first).await == json!(["sql"]) && adapters(&second).await == json!([]);
    eventually("both have said what they have", both_are_known).await;
    let mut all = [first.address.as_str(), second.address.as_str()];
    all.sort_unstable();

    assert_eq!(endpoints(&ask(&indexer, "sql").await), [&first.address]);
    assert_eq!(endpoints(&ask(&indexer, "tiny").await), all);
    let unlisted = ask(&indexer, "chat").await;
    assert_eq!((endpoints(&unlisted).as_slice(), unlisted.reason.as_str()), (&all[..], "no_events"));
    assert_eq!(ask(&indexer, "elsewhere").await.reason, "unknown_model");

    // Loaded on the other one too, then unloaded everywhere: nobody knows the name any more.
    second.list(&["sql", "chat"]);
    eventually("the second has them", async || endpoints(&ask(&indexer, "sql").await) == all).await;
    assert_eq!(endpoints(&ask(&indexer, "chat").await), [&second.address]);
    first.list(&[]);
    second.list(&[]);
    eventually("they are unloaded", async || ask(&indexer, "sql").await.reason == "unknown_model").await;
    indexer.stop().await;
    first.stop().await;
    second.stop().await;
}

/// What engines said of their adapters grows old and is forgotten; requests go on to all endpoints of the base.
#[tokio::test]
async fn engines_that_say_nothing_any_more_stop_no_traffic() {
    let (first, second) = (HttpEngine::start().await, HttpEngine::start().await);
    first.list(&["sql"]);
    let lines = [&first, &second].map(|engine| format!("    - {{ address: \"{}\" }}\n", engine.address));
    let indexer = Indexer::start(&config("{ name: tiny, adapters: [sql] }", &lines.concat())).await;
    eventually("one has said", async || endpoints(&ask(&indexer, "sql").await) == [&first.address]).await;
    first.fall_silent();
    eventually("it is old", async || endpoints(&ask(&indexer, "sql").await).len() == 2).await;
    let unreadable = "warmpath_engine_questions_total{question=\"models\",result=\"unreadable\"}";
    assert!(indexer.metric(unreadable).await >= 5.0);
    indexer.stop().await;
    first.stop().await;
    second.stop().await;
}

/// Engines that take a connection and say nothing, as frozen ones do, are waited for by nobody else.
#[tokio::test]
async fn engines_that_hang_keep_no_other_s_adapters_from_being_known() {
    let engine = HttpEngine::start().await;
    engine.list(&["sql"]);
    let mut hanging = Vec::new();
    for _ in 0..40 {
        hanging.push(tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let addresses = hanging.iter().map(|listener| listener.local_addr().unwrap().to_string());
    let all = addresses.chain([engine.address.clone()]);
    let lines: String = all.map(|address| format!("    - {{ address: \"{address}\" }}\n")).collect();
    let yaml = config("{ name: tiny }", &lines)
        .replace("identity_interval_ms: 20", "identity_interval_ms: 20, timeout_ms: 600000");
    let indexer = Indexer::start(&yaml).await;
    eventually("it is known", async || endpoints(&ask(&indexer, "sql").await) == [&engine.address]).await;
    engine.list(&["chat"]);
    eventually("and again", async || endpoints(&ask(&indexer, "chat").await) == [&engine.address]).await;
    indexer.stop().await;
    engine.stop().await;
}
