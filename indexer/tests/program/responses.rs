//! Requests that go on from an earlier response go to the engine that keeps it.

use warmpath_proto::v1::{End, Outcome, ScoreRequest, ScoreResponse};

use crate::support::{Indexer, config, end_with, eventually, failed, report, tokens};

const ENDPOINTS: [&str; 3] = ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"];

fn going_on(key: u64) -> ScoreRequest {
    ScoreRequest {
        model: "tiny".into(),
        path: "/v1/responses".into(),
        body_bytes: 4000,
        previous_response_key: key,
        ..ScoreRequest::default()
    }
}

async fn ask(indexer: &Indexer, request: ScoreRequest) -> ScoreResponse {
    indexer.client().await.score(request).await.unwrap().into_inner()
}

/// Reports that `endpoint` made the response `key`.
async fn made(indexer: &Indexer, key: u64, endpoint: &str) {
    let told = End { endpoint: endpoint.into(), response_key: key, ..End::default() };
    report(&mut indexer.client().await, vec![end_with(0, told)]).await;
}

#[tokio::test]
async fn a_request_goes_to_who_made_the_response_it_goes_on_from() {
    let indexer = Indexer::start(&config(&ENDPOINTS)).await;
    let mut client = indexer.client().await;
    // Of a decision of ours, and of a request that no indexer decided.
    let answer = ask(&indexer, tokens(0..100)).await;
    let told = End { endpoint: ENDPOINTS[1].into(), response_key: 7, ..End::default() };
    report(&mut client, vec![end_with(answer.decision_id, told)]).await;
    made(&indexer, 8, ENDPOINTS[2]).await;

    for (key, keeper) in [(7, ENDPOINTS[1]), (8, ENDPOINTS[2])] {
        // It is the busiest by far.
        while indexer.load(keeper).await.0 < 100_000 {
            ask(&indexer, tokens(0..30_000)).await;
        }
        let answer = ask(&indexer, going_on(key)).await;
        assert_eq!((answer.outcome(), answer.reason.as_str()), (Outcome::LoadOnly, "previous_response"));
        assert_eq!(answer.candidates[0].endpoint, keeper);
        assert_eq!(answer.candidates.len(), 3, "a retry has somewhere to go");
        let costs: Vec<f64> =
            answer.candidates.iter().map(|candidate| candidate.terms.as_ref().unwrap().cost).collect();
        assert!(costs[1] <= costs[2], "the others by load: {costs:?}");
    }
    let unknown = ask(&indexer, going_on(9)).await;
    assert_eq!(unknown.reason, "previous_response_unknown");
    assert_eq!((unknown.outcome(), unknown.candidates.len()), (Outcome::LoadOnly, 3));
    indexer.stop().await;
}

/// What an engine did not finish, or answered with an error, it does not keep.
#[tokio::test]
async fn a_failed_response_is_kept_by_nobody() {
    let indexer = Indexer::start(&config(&ENDPOINTS)).await;
    let mut event = failed(0, ENDPOINTS[0]);
    if let Some(warmpath_proto::v1::event::What::End(end)) = &mut event.what {
        end.response_key = 7;
    }
    report(&mut indexer.client().await, vec![event]).await;
    made(&indexer, 8, "10.0.0.9:8000").await;
    for key in [7, 8] {
        assert_eq!(ask(&indexer, going_on(key)).await.reason, "previous_response_unknown");
    }
    indexer.stop().await;
}

/// Reading or cancelling a response that is kept, and counting tokens, is no work for an engine's queue.
#[tokio::test]
async fn requests_for_which_nothing_is_computed_count_nowhere() {
    let indexer = Indexer::start(&config(&ENDPOINTS)).await;
    made(&indexer, 7, ENDPOINTS[1]).await;
    let about =
        ScoreRequest { not_scorable_reason: "no_prefill".into(), model: String::new(), ..going_on(7) };
    let answer = ask(&indexer, about).await;
    assert_eq!(
        (answer.candidates[0].endpoint.as_str(), answer.reason.as_str()),
        (ENDPOINTS[1], "previous_response")
    );
    let counting = ScoreRequest { not_scorable_reason: "no_prefill".into(), ..going_on(0) };
    let counted = ask(&indexer, counting).await;
    assert_eq!((counted.reason.as_str(), counted.candidates[0].uncached_tokens), ("no_prefill", 0));
    assert!(indexer.loads().await.iter().all(|(_, queued, active)| (*queued, *active) == (0, 0)));
    let ends = [answer.decision_id, counted.decision_id].map(|id| end_with(id, End::default()));
    assert_eq!(report(&mut indexer.client().await, ends.into()).await, 0, "both decisions are known");
    indexer.stop().await;
}

/// What is reported to one indexer all know, and one that starts later learns it.
#[tokio::test]
async fn indexers_tell_each_other_who_keeps_a_response() {
    let first = Indexer::start(&config(&ENDPOINTS)).await;
    made(&first, 7, ENDPOINTS[1]).await;
    let follower = format!("{}peers: [\"{}\"]\n", config(&ENDPOINTS), first.bound.grpc);
    let late = Indexer::start(&follower).await;
    let keeper = async |indexer: &Indexer, key| {
        let answer = ask(indexer, going_on(key)).await;
        (answer.reason == "previous_response").then(|| answer.candidates[0].endpoint.clone())
    };
    let told = async || keeper(&late, 7).await.as_deref() == Some(ENDPOINTS[1]);
    eventually("the late one learns it", told).await;
    made(&first, 8, ENDPOINTS[2]).await;
    let told = async || keeper(&late, 8).await.as_deref() == Some(ENDPOINTS[2]);
    eventually("and what comes after", told).await;
    late.stop().await;
    first.stop().await;
}
