//! From a question to a ranking, and what reports make of it.

use std::collections::HashMap;

use tonic::Code;
use warmpath_proto::v1::{
    ChatPrompt, Outcome, ScoreRequest, TextPrompts, TokenIds, TokenPrompts, score_request,
};

use crate::support::{Indexer, alive, config, end, failed, first_byte, report, tokens};

#[tokio::test]
async fn ranks_by_load_where_no_events_are_configured_and_keeps_books() {
    let indexer = Indexer::start(&config(&["10.0.0.1:8000", "10.0.0.2:8000"])).await;
    let mut client = indexer.client().await;

    let answer = client.score(tokens(0..1000)).await.unwrap().into_inner();
    assert_eq!(answer.outcome(), Outcome::LoadOnly);
    assert_eq!((answer.reason.as_str(), answer.policy.as_str()), ("no_events", "cost"));
    assert_eq!((answer.candidates.len(), answer.prompt_tokens), (2, 1000));
    let endpoints = answer.endpoints.expect("the filter had no set");
    assert_eq!(endpoints.endpoints.len(), 2);
    let first = answer.candidates[0].endpoint.clone();

    // The second request sees the reservation of the first; its filter knows the set.
    let second = ScoreRequest { endpoints_version: endpoints.version, ..tokens(0..1000) };
    let second = client.score(second).await.unwrap().into_inner();
    assert_ne!(second.candidates[0].endpoint, first);
    assert_eq!(second.endpoints, None);
    assert_eq!(indexer.load(&first).await, (1000, 1));

    assert_eq!(report(&mut client, vec![first_byte(answer.decision_id, &first)]).await, 0);
    assert_eq!(indexer.load(&first).await, (0, 1));
    assert_eq!(report(&mut client, vec![alive(answer.decision_id)]).await, 0);
    let over = end(answer.decision_id, &first, None);
    assert_eq!(report(&mut client, vec![over.clone()]).await, 0);
    assert_eq!(indexer.load(&first).await, (0, 0));
    assert_eq!(report(&mut client, vec![over]).await, 1, "over is over");
    indexer.stop().await;
}

// D2 (llm-d/llm-d-router#2515), D3 (kubernetes-sigs/gateway-api-inference-extension#1700), D22 (vllm-project/aibrix#2422)
/// A burst of equal requests, all in flight before any is answered, spreads evenly.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_equal_requests_spreads() {
    let endpoints: Vec<String> = (1..=8).map(|host| format!("10.0.0.{host}:8000")).collect();
    let indexer = Indexer::start(&config(&endpoints.iter().map(String::as_str).collect::<Vec<_>>())).await;
    let client = indexer.client().await;
    let burst = (0..200).map(|_| {
        let mut client = client.clone();
        async move { client.score(tokens(0..500)).await.unwrap().into_inner().candidates[0].endpoint.clone() }
    });
    let mut picks: HashMap<String, u32> = HashMap::new();
    for pick in futures::future::join_all(burst).await {
        *picks.entry(pick).or_default() += 1;
    }
    assert!(picks.len() == 8 && picks.values().all(|count| (20..=30).contains(count)), "{picks:?}");
    indexer.stop().await;
}

#[tokio::test]
async fn a_retry_elsewhere_moves_the_load() {
    let indexer = Indexer::start(&config(&["10.0.0.1:8000", "10.0.0.2:8000"])).await;
    let mut client = indexer.client().await;
    let answer = client.score(tokens(0..1000)).await.unwrap().into_inner();
    let (first, second) = (&answer.candidates[0].endpoint, &answer.candidates[1].endpoint);
    report(&mut client, vec![first_byte(answer.decision_id, second)]).await;
    assert_eq!((indexer.load(first).await, indexer.load(second).await), ((0, 0), (0, 1)));
    report(&mut client, vec![end(answer.decision_id, second, None)]).await;
    assert_eq!(indexer.load(second).await, (0, 0));
    indexer.stop().await;
}

#[tokio::test]
async fn requests_that_cannot_be_scored_are_ranked_by_load_and_say_why() {
    let indexer = Indexer::start(&config(&["10.0.0.1:8000"])).await;
    let mut client = indexer.client().await;
    let texts = score_request::Prompt::Texts(TextPrompts { texts: vec!["a text".into()] });
    let chat = ChatPrompt { messages_json: b"[]".to_vec(), ..ChatPrompt::default() };
    let unknown = ScoreRequest { model: "other".into(), ..tokens(0..100) };
    let nothing = ScoreRequest { model: "tiny".into(), body_bytes: 400, ..ScoreRequest::default() };
    let told = ScoreRequest { not_scorable_reason: "prompt_embeds".into(), ..nothing.clone() };
    let newer = ScoreRequest { not_scorable_reason: "invented_tomorrow".into(), ..nothing.clone() };
    let cases = [
        (ScoreRequest { prompt: Some(texts), ..nothing.clone() }, "no_tokenizer"),
        (ScoreRequest { prompt: Some(score_request::Prompt::Chat(chat)), ..nothing.clone() }, "no_tokenizer"),
        (unknown, "unknown_model"),
        (nothing, "no_prompt"),
        (told, "prompt_embeds"),
        (newer, "other"),
    ];
    for (request, reason) in cases {
        let answer = client.score(request).await.unwrap().into_inner();
        assert_eq!((answer.outcome(), answer.reason.as_str()), (Outcome::LoadOnly, reason));
        assert_eq!(answer.candidates.len(), 1, "{reason}");
    }
    indexer.stop().await;
}

/// Every sequence of every prompt counts, and so do the tokens of all prompts.
#[tokio::test]
async fn a_request_of_many_prompts_reserves_for_all_of_them() {
    let indexer = Indexer::start(&config(&["10.0.0.1:8000"])).await;
    let mut client = indexer.client().await;
    let prompts = vec![TokenIds { ids: (0..100).collect() }, TokenIds { ids: (0..50).collect() }];
    let request = ScoreRequest {
        prompt: Some(score_request::Prompt::Tokens(TokenPrompts { prompts })),
        sequences_per_prompt: 3,
        ..tokens(0..0)
    };
    client.score(request).await.unwrap();
    assert_eq!(indexer.load("10.0.0.1:8000").await, (150, 6));
    indexer.stop().await;
}

#[tokio::test]
async fn messages_beyond_the_contract_are_refused_by_the_name_of_the_field() {
    let indexer = Indexer::start(&config(&["10.0.0.1:8000"])).await;
    let mut client = indexer.client().await;
    let prompts = vec![TokenIds::default(); 1025];
    let cases = [
        (ScoreRequest { model: "x".repeat(513), ..tokens(0..1) }, "model"),
        (ScoreRequest { cache_salt: "x".repeat(1025), ..tokens(0..1) }, "cache_salt"),
        (ScoreRequest { policy: "fastest".into(), ..tokens(0..1) }, "policy"),
        (ScoreRequest { sequences_per_prompt: 129, ..tokens(0..1) }, "sequences_per_prompt"),
        (
            ScoreRequest {
                prompt: Some(score_request::Prompt::Tokens(TokenPrompts { prompts })),
                ..ScoreRequest::default()
            },
            "tokens",
        ),
    ];
    for (request, field) in cases {
        let status = client.score(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with(field), "{status}");
    }
    assert_eq!(indexer.load("10.0.0.1:8000").await, (0, 0), "nothing was reserved");
    indexer.stop().await;
}

/// A lease that ends frees the load of a request that was never reported over.
#[tokio::test]
async fn a_silent_request_is_forgotten_with_its_lease() {
    let yaml = format!("{}leases: {{ reservation_ms: 200 }}\n", config(&["10.0.0.1:8000"]));
    let indexer = Indexer::start(&yaml).await;
    indexer.client().await.score(tokens(0..1000)).await.unwrap();
    crate::support::eventually("the lease ends", async || indexer.load("10.0.0.1:8000").await == (0, 0))
        .await;
    assert_eq!(indexer.metric("warmpath_expired_reservations_total").await, 1.0);
    indexer.stop().await;
}

/// Work that cannot be done in time is given up for a ranking by load, which is counted like any other.
#[tokio::test]
async fn a_prompt_that_comes_too_late_is_ranked_by_load() {
    let indexer = Indexer::start(&config(&["10.0.0.1:8000"])).await;
    let mut client = indexer.client().await;
    let request = ScoreRequest { deadline_us: 1, body_bytes: 4000, ..tokens(0..100_000) };
    let answer = client.score(request).await.unwrap().into_inner();
    assert_eq!((answer.outcome(), answer.reason.as_str()), (Outcome::LoadOnly, "late"));
    assert_eq!(indexer.load("10.0.0.1:8000").await, (1000, 1));
    indexer.stop().await;
}

/// An endpoint that fails at once has no queue, and must not win every pick for it.
#[tokio::test]
async fn an_endpoint_that_fails_fast_is_not_chosen_for_its_empty_queue() {
    let indexer = Indexer::start(&config(&["10.0.0.1:8000", "10.0.0.2:8000"])).await;
    let mut client = indexer.client().await;
    let mut failures = 0;
    for _ in 0..40 {
        let answer = client.score(tokens(0..2000)).await.unwrap().into_inner();
        let picked = &answer.candidates[0].endpoint;
        if picked == "10.0.0.1:8000" {
            failures += 1;
            report(&mut client, vec![failed(answer.decision_id, picked)]).await;
        } else {
            // The other one answers, and its sequences stay open.
            report(&mut client, vec![first_byte(answer.decision_id, picked)]).await;
        }
    }
    assert!((1..=5).contains(&failures), "{failures} of 40 requests went to the endpoint that fails");
    indexer.stop().await;
}
