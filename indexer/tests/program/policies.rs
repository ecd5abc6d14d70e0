//! Which policy a request goes by, and that everything tells it.

use std::collections::{BTreeMap, HashMap};

use serde_json::json;
use warmpath_proto::v1::ScoreRequest;

use crate::support::{Indexer, config, end, first_byte, report, tokens};

/// Three endpoints, and this `policy` section.
async fn start(policy: &str) -> Indexer {
    let endpoints = config(&["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]);
    Indexer::start(&format!("{endpoints}policy: {policy}\n")).await
}

/// The A/B run of two policies is one line of configuration: parts are as large as they say, what belongs together
/// stays together, and answers, metrics and receipts tell which policy it was.
#[tokio::test]
async fn a_split_is_one_line_and_everything_tells_the_policy() {
    let indexer = start("{ split: [{ name: least_load, percent: 30 }] }").await;
    let mut client = indexer.client().await;
    let mut policies: HashMap<u64, String> = HashMap::new();
    for round in 0..2 {
        for group_key in 1..=200 {
            let answer =
                client.score(ScoreRequest { group_key, ..tokens(0..50) }).await.unwrap().into_inner();
            let endpoint = &answer.candidates[0].endpoint;
            let id = answer.decision_id;
            report(&mut client, vec![first_byte(id, endpoint), end(id, endpoint, None)]).await;
            let before = policies.insert(group_key, answer.policy.clone());
            assert!(round == 0 || before == Some(answer.policy), "{group_key} changed its policy");
        }
    }
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for policy in policies.values() {
        *counts.entry(policy).or_default() += 1;
    }
    let [("cost", cost), ("least_load", least_load)] = counts.into_iter().collect::<Vec<_>>()[..] else {
        panic!("two policies")
    };
    assert!((35..=85).contains(&least_load) && cost + least_load == 200, "{cost} {least_load}");
    for (policy, count) in [("cost", cost), ("least_load", least_load)] {
        let labels = format!("policy=\"{policy}\",outcome=\"load_only\",reason=\"no_events\"");
        let decisions = indexer.metric(&format!("warmpath_decisions_total{{{labels}}}")).await;
        assert_eq!(decisions, f64::from(count * 2));
        let answered = indexer.metric(&format!("warmpath_ttft_seconds_count{{policy=\"{policy}\"}}")).await;
        assert_eq!(answered, f64::from(count * 2));
        let (_, receipts) = indexer.get(&format!("/receipts?policy={policy}&limit=1000")).await;
        let receipts: Vec<serde_json::Value> = serde_json::from_str(&receipts).unwrap();
        assert_eq!(receipts.len(), usize::try_from(count * 2).unwrap().min(256));
        let percent = if policy == "cost" { 70 } else { 30 };
        for receipt in receipts {
            assert_eq!(
                (&receipt["policy_from"], &receipt["split_percent"]),
                (&json!("split"), &json!(percent))
            );
        }
    }
    indexer.stop().await;
}

#[tokio::test]
async fn a_request_that_names_a_policy_is_not_split() {
    let indexer = start("{ split: [{ name: least_load, percent: 100 }] }").await;
    let mut client = indexer.client().await;
    let named = ScoreRequest { policy: "sticky".into(), group_key: 7, ..tokens(0..50) };
    assert_eq!(client.score(named).await.unwrap().into_inner().policy, "sticky");
    assert_eq!(client.score(tokens(0..50)).await.unwrap().into_inner().policy, "least_load");
    indexer.stop().await;
}

/// Requests for two models in turn: each goes round its own endpoints.
#[tokio::test]
async fn models_take_turns_of_their_own() {
    let yaml = "listen: { grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }\n\
        policy: { name: round_robin }\nmodels: [{ name: a }, { name: b }]\n\
        scrape: { interval_ms: 60000, failures_to_avoid: 1000 }\nendpoints:\n  static:\n\
        \x20   - { address: \"10.0.0.1:1\", model: a }\n    - { address: \"10.0.0.2:1\", model: a }\n\
        \x20   - { address: \"10.0.0.3:1\", model: b }\n    - { address: \"10.0.0.4:1\", model: b }\n";
    let indexer = Indexer::start(yaml).await;
    let mut client = indexer.client().await;
    let mut picks: BTreeMap<String, u32> = BTreeMap::new();
    for turn in 0..20 {
        let model = if turn % 2 == 0 { "a" } else { "b" };
        let request = ScoreRequest { model: model.into(), ..tokens(0..50) };
        let answer = client.score(request).await.unwrap().into_inner();
        *picks.entry(answer.candidates[0].endpoint.clone()).or_default() += 1;
    }
    assert!(picks.len() == 4 && picks.values().all(|count| *count == 5), "{picks:?}");
    indexer.stop().await;
}

/// Cold requests go round by rest: who got one longest ago is next.
#[tokio::test]
async fn cold_requests_go_round_by_rest() {
    let indexer = start("{ name: weighted_3_2_2_2 }").await;
    let mut client = indexer.client().await;
    let mut picks = Vec::new();
    for turn in 0..6 {
        let answer = client.score(tokens(turn * 100..turn * 100 + 50)).await.unwrap().into_inner();
        let endpoint = answer.candidates[0].endpoint.clone();
        report(&mut client, vec![end(answer.decision_id, &endpoint, None)]).await;
        picks.push(endpoint);
    }
    let (mut first, second) = (picks[..3].to_vec(), &picks[3..]);
    assert_eq!(first, second);
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), 3, "{picks:?}");
    indexer.stop().await;
}
