//! With events: who holds the prefix gets the request, and forecasts are held against facts.

use std::{collections::BTreeSet, time::Duration};

use warmpath_proto::v1::{Outcome, ScoreRequest};

use crate::engine::{BLOCK, Engine};
use crate::support::{Indexer, end, eventually, first_byte, report, tokens};

const FIRST: &str = "10.0.0.1:8000";
const SECOND: &str = "10.0.0.2:8000";

/// An indexer over two engines, both of which it hears.
async fn with_two_engines() -> (Indexer, Engine, Engine) {
    let (first, second) = (Engine::start(), Engine::start());
    let yaml = format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n\
         models: [{{ name: tiny, aliases: [other-name] }}]\n\
         scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\n\
         endpoints:\n  static:\n    - {{ address: \"{FIRST}\", events: \"{}\" }}\n    - {{ address: \"{SECOND}\", events: \"{}\" }}\n",
        first.events, second.events
    );
    let indexer = Indexer::start(&yaml).await;
    (indexer, first, second)
}

/// Blocks that are held, each as often as there are engines that hold it.
async fn held(indexer: &Indexer) -> u64 {
    indexer.state().await["index"]["references"].as_u64().unwrap()
}

#[tokio::test]
async fn the_holder_of_the_prefix_gets_the_request_and_its_tokens_are_predicted() {
    let (indexer, mut first, mut second) = with_two_engines().await;
    let mut client = indexer.client().await;
    first.store(0..64 * BLOCK);
    second.store(1_000_000..1_000_000 + BLOCK);
    eventually("events are indexed", async || held(&indexer).await == 65).await;

    for model in ["tiny", "other-name", ""] {
        let request = ScoreRequest { model: model.into(), ..tokens(0..64 * BLOCK + 10) };
        let answer = client.score(request).await.unwrap().into_inner();
        assert_eq!((answer.outcome(), answer.reason.as_str()), (Outcome::Scored, ""));
        let best = &answer.candidates[0];
        assert_eq!(
            (best.endpoint.as_str(), best.cached_tokens, best.uncached_tokens),
            (FIRST, 64 * BLOCK, 10)
        );
        assert_eq!(answer.reachable_tokens, 64 * BLOCK);
        let other = answer.candidates[1].terms.as_ref().unwrap();
        assert_eq!(other.duplicated_tokens, 64 * BLOCK);
        let over = end(answer.decision_id, FIRST, Some(64 * BLOCK));
        report(&mut client, vec![first_byte(answer.decision_id, FIRST), over]).await;
    }
    let label = |result| format!("model=\"tiny\",endpoint=\"{FIRST}\",result=\"{result}\"");
    assert_eq!(indexer.metric(&format!("warmpath_predictions_total{{{}}}", label("equal"))).await, 3.0);
    assert_eq!(indexer.metric("warmpath_ttft_seconds_count{policy=\"cost\"}").await, 3.0);
    let scored = "warmpath_decisions_total{policy=\"cost\",outcome=\"scored\",reason=\"\"}";
    assert_eq!(indexer.metric(scored).await, 3.0);
    indexer.stop().await;
}

#[tokio::test]
async fn what_an_engine_found_is_held_against_the_forecast_for_the_endpoint_that_served() {
    let (indexer, mut first, mut second) = with_two_engines().await;
    let mut client = indexer.client().await;
    first.store(0..10 * BLOCK);
    second.store(0..2 * BLOCK);
    eventually("events are indexed", async || held(&indexer).await == 12).await;
    let ask = tokens(0..10 * BLOCK + 1);
    for (served, found) in [(FIRST, 9 * BLOCK), (FIRST, 11 * BLOCK), (SECOND, 2 * BLOCK)] {
        let answer = client.score(ask.clone()).await.unwrap().into_inner();
        report(&mut client, vec![end(answer.decision_id, served, Some(found))]).await;
    }
    let count = async |endpoint: &str, result: &str| {
        let labels = format!("model=\"tiny\",endpoint=\"{endpoint}\",result=\"{result}\"");
        indexer.metric(&format!("warmpath_predictions_total{{{labels}}}")).await
    };
    assert_eq!(count(FIRST, "overpredicted").await, 1.0);
    assert_eq!(count(FIRST, "underpredicted").await, 1.0);
    assert_eq!(count(SECOND, "equal").await, 1.0);
    indexer.stop().await;
}

/// Two requests with the same prefix, the second before any event of the first: it goes where the first went, unless
/// that queue costs more than the prefix.
#[tokio::test]
async fn blocks_of_a_picked_endpoint_count_before_their_events() {
    let (indexer, mut first, mut second) = with_two_engines().await;
    let mut client = indexer.client().await;
    first.store(2_000_000..2_000_000 + BLOCK);
    second.store(3_000_000..3_000_000 + BLOCK);
    eventually("block sizes are learnt", async || held(&indexer).await == 2).await;
    let answer = client.score(tokens(0..100 * BLOCK + 1)).await.unwrap().into_inner();
    assert_eq!((answer.outcome(), answer.candidates[0].cached_tokens), (Outcome::Scored, 0));
    let picked = answer.candidates[0].endpoint.clone();
    report(&mut client, vec![first_byte(answer.decision_id, &picked)]).await;
    let again = client.score(tokens(0..100 * BLOCK + 1)).await.unwrap().into_inner();
    assert_eq!(again.candidates[0].endpoint, picked);
    assert_eq!(again.candidates[0].cached_tokens, 100 * BLOCK);
    indexer.stop().await;
}

/// A burst of requests for a prefix that nobody holds. Their prompts are worked on at the same time, yet each is picked
/// for with the blocks in mind that those before it will bring.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_burst_of_equal_prompts_one_at_each_endpoint_is_cold() {
    /// Enough for the prompt to be worked on beside the runtime.
    const BLOCKS: u32 = 2500;
    let (indexer, mut first, mut second) = with_two_engines().await;
    let mut client = indexer.client().await;
    first.store(2_000_000..2_000_000 + BLOCK);
    second.store(3_000_000..3_000_000 + BLOCK);
    eventually("block sizes are learnt", async || held(&indexer).await == 2).await;
    let burst = (0..16).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move { client.score(tokens(0..BLOCKS * BLOCK + 1)).await.unwrap().into_inner() })
    });
    let answers: Vec<_> = futures::future::join_all(burst).await.into_iter().map(Result::unwrap).collect();
    let cold: Vec<_> = answers.iter().filter(|answer| answer.candidates[0].cached_tokens == 0).collect();
    assert!((1..=2).contains(&cold.len()), "{} of {} are cold", cold.len(), answers.len());
    let places: BTreeSet<_> = cold.iter().map(|answer| &answer.candidates[0].endpoint).collect();
    assert_eq!(places.len(), cold.len(), "an endpoint was cold twice");
    let ends = answers.iter().map(|answer| end(answer.decision_id, &answer.candidates[0].endpoint, None));
    report(&mut client, ends.collect()).await;
    indexer.stop().await;
}

#[tokio::test]
async fn a_prompt_of_one_block_is_ranked_by_load() {
    let (indexer, mut first, _second) = with_two_engines().await;
    let mut client = indexer.client().await;
    first.store(0..BLOCK);
    eventually("events are indexed", async || held(&indexer).await == 1).await;
    let answer = client.score(tokens(0..BLOCK)).await.unwrap().into_inner();
    assert_eq!((answer.outcome(), answer.reason.as_str()), (Outcome::LoadOnly, "below_block"));
    indexer.stop().await;
}

#[tokio::test]
async fn another_tenant_s_blocks_are_no_hits_and_a_cleared_cache_has_none() {
    let (indexer, mut first, _second) = with_two_engines().await;
    let mut client = indexer.client().await;
    first.store(0..10 * BLOCK);
    eventually("events are indexed", async || held(&indexer).await == 10).await;
    let salted = ScoreRequest { cache_salt: "tenant".into(), ..tokens(0..10 * BLOCK + 1) };
    let answer = client.score(salted).await.unwrap().into_inner();
    assert_eq!((answer.outcome(), answer.reachable_tokens), (Outcome::Scored, 0));
    report(&mut client, vec![end(answer.decision_id, &answer.candidates[0].endpoint, None)]).await;
    first.clear();
    eventually("the cache is empty", async || {
        let state = indexer.state().await;
        state["endpoints"][0]["ranks"][0]["stream"]["blocks"] == 0
    })
    .await;
    let answer = client.score(tokens(0..10 * BLOCK + 1)).await.unwrap().into_inner();
    assert_eq!((answer.outcome(), answer.reachable_tokens), (Outcome::Scored, 0));
    indexer.stop().await;
}

/// Policies are chosen per request, for comparisons on live traffic.
#[tokio::test]
async fn a_request_may_name_its_policy() {
    let (indexer, mut first, _second) = with_two_engines().await;
    let mut client = indexer.client().await;
    first.store(0..10 * BLOCK);
    eventually("events are indexed", async || held(&indexer).await == 10).await;
    let mut firsts = Vec::new();
    for _ in 0..4 {
        let request = ScoreRequest { policy: "round_robin".into(), ..tokens(0..10 * BLOCK + 1) };
        let answer = client.score(request).await.unwrap().into_inner();
        assert_eq!((answer.policy.as_str(), answer.outcome()), ("round_robin", Outcome::Scored));
        firsts.push(answer.candidates[0].endpoint.clone());
    }
    assert!(firsts[0] != firsts[1] && firsts[0] == firsts[2] && firsts[1] == firsts[3], "{firsts:?}");
    indexer.stop().await;
}

/// An endpoint's prompt of more tokens than are looked up inline takes the pool, with the same answer.
#[tokio::test]
async fn a_long_prompt_is_scored_like_a_short_one() {
    let (indexer, mut first, _second) = with_two_engines().await;
    let mut client = indexer.client().await;
    first.store(0..3000 * BLOCK);
    eventually("events are indexed", async || held(&indexer).await == 3000).await;
    let request = ScoreRequest { deadline_us: 5_000_000, ..tokens(0..3000 * BLOCK + 7) };
    let answer = tokio::time::timeout(Duration::from_secs(5), client.score(request)).await.unwrap().unwrap();
    let answer = answer.into_inner();
    assert_eq!((answer.candidates[0].endpoint.as_str(), answer.candidates[0].uncached_tokens), (FIRST, 7));
    indexer.stop().await;
}
