use serde_json::{Value, json};

use super::*;

fn ranked(question: &Value) -> Value {
    serde_json::from_str(&rank(&question.to_string()).unwrap()).unwrap()
}

fn question() -> Value {
    json!({
        "policy": { "name": "cost" },
        "request": { "prompt_tokens": 3136 },
        "candidates": [
            { "name": "cold", "pressure": 0.5 },
            { "name": "warm", "cached_tokens": 3072, "queued_tokens": 100, "active_sequences": 2 },
        ],
    })
}

#[test]
fn a_ranking_tells_what_its_costs_are_made_of() {
    let answer = ranked(&question());
    assert_eq!(
        (&answer["policy"], &answer["lambda"], &answer["mu"]),
        (&json!("cost"), &json!(4.0), &json!(50.0))
    );
    let [warm, cold] = answer["ranked"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    // c·(Q+N) + λ·p·D + μ·A
    assert_eq!(warm["candidate"]["name"], "warm");
    assert_eq!((&warm["cost"], &warm["uncached_tokens"]), (&json!(264.0), &json!(64)));
    assert_eq!(
        cold["candidate"],
        json!({
            "name": "cold", "cached_tokens": 0, "queued_tokens": 0, "waiting_sequences": 0, "active_sequences": 0,
            "kv_usage": 0.0, "room_tokens": null, "pressure": 0.5, "slowness": 1.0, "capacity": 1.0, "ramp": 1.0,
            "recent_tokens": 0.0, "away_tokens": 0.0, "penalty": 0.0, "last_cold": 0,
        })
    );
    assert_eq!((&cold["cost"], &cold["duplicated_tokens"]), (&json!(9280.0), &json!(3072)));
}

#[test]
fn every_policy_can_be_asked_for() {
    let firsts = Policy::NAMES.map(|name| {
        let mut question = question();
        question["policy"]["name"] = json!(name);
        let answer = ranked(&question);
        assert_eq!(answer["policy"], name);
        answer["ranked"][0]["candidate"]["name"].as_str().unwrap().to_owned()
    });
    // The two of which power_of_two takes the better one are all that there are.
    let expected = ["cold", "cold", "cold", "warm", "warm", "warm", "warm", "warm", "warm", "warm"];
    assert_eq!(firsts, expected, "{:?}", Policy::NAMES);
}

#[test]
fn policies_take_their_own_parameters() {
    let first = |policy: Value| {
        let mut question = question();
        question["policy"] = policy;
        question["candidates"][1]["kv_usage"] = json!(1.0);
        question["candidates"][1]["queued_tokens"] = json!(5000);
        ranked(&question)["ranked"][0]["candidate"]["name"].clone()
    };
    assert_eq!(first(json!({ "name": "weighted", "weights": { "prefix": 1 } })), "warm");
    assert_eq!(first(json!({ "name": "weighted", "weights": { "kv": 1 } })), "cold");
    assert_eq!(first(json!({ "name": "sticky", "sticky": { "gate_tokens": 5000 } })), "warm");
    assert_eq!(first(json!({ "name": "sticky", "sticky": { "gate_tokens": 4999 } })), "cold");
    assert_eq!(first(json!({ "name": "sticky", "sticky": { "share": 0.99 } })), "cold");
}

#[test]
fn equal_candidates_are_ordered_by_the_seed() {
    let first = |seed: u64| {
        let mut question = question();
        question["candidates"] = json!([{ "name": "a" }, { "name": "b" }]);
        question["seed"] = json!(seed);
        ranked(&question)["ranked"][0]["candidate"]["name"].clone()
    };
    assert_eq!(first(3), first(3));
    let wins = (0..100).filter(|seed| first(*seed) == "a").count();
    assert!((20..80).contains(&wins), "{wins}");
}

#[test]
fn what_does_not_fit_is_named() {
    let change = |pointer: &str, value: Value| {
        let mut question = question();
        *question.pointer_mut(pointer).unwrap() = value;
        question.to_string()
    };
    let many = vec![json!({ "name": "x" }); ENDPOINTS_MAX + 1];
    let cases = [
        ("".to_owned(), "question: EOF"),
        ("[]".to_owned(), "question: invalid"),
        ("{}".to_owned(), "question: missing field `policy`"),
        (format!("{} x", question()), "question: trailing characters"),
        (change("/policy/name", json!("fastest")), "policy.name: expected one of round_robin, "),
        (change("/policy", json!({ "name": "cost", "mu": -1 })), "policy.mu: expected 0 or more, got -1"),
        (change("/policy", json!({ "name": "cost", "nu": 1 })), "policy.nu: unknown field `nu`"),
        (
            change("/policy", json!({ "name": "weighted", "weights": { "kv": -1 } })),
            "policy.weights.kv: expected 0 or more, got -1",
        ),
        (
            change("/policy", json!({ "name": "sticky", "sticky": { "share": 2 } })),
            "policy.sticky.share: expected 0 to 1, got 2",
        ),
        (change("/request/prompt_tokens", json!(-1)), "request.prompt_tokens: invalid"),
        (change("/candidates/1/cached_tokens", json!("x")), "candidates[1].cached_tokens: invalid type"),
        (change("/candidates/0/pressure", json!(1.5)), "candidates[0].pressure: expected 0 to 1, got 1.5"),
        (change("/candidates/0", json!({ "name": "x", "penalty": -2 })), "candidates[0].penalty: expected 0"),
        (change("/candidates/0", json!({})), "candidates[0]: missing field `name`"),
        (change("/candidates", json!(many)), "candidates: expected at most 4096, got 4097"),
    ];
    for (question, expected) in cases {
        let error = rank(&question).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{question:.80}: {error}");
    }
    // A number that no 64-bit float holds.
    let huge = question().to_string().replace("0.5", "1e999");
    assert!(rank(&huge).unwrap_err().to_string().starts_with("candidates[0].pressure: "));
}
