//! The browser build does in a real browser what its crate does natively: the same requests and questions go through
//! both, and some answers are held against what they must be.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use warmpath_core::path::KnownPath;
use warmpath_tests::browser::{Files, answer_of_page};
use warmpath_tests::case::fresh_dir;
use warmpath_tests::paths;

#[derive(Clone, Debug, Serialize)]
struct Request {
    method: &'static str,
    path: String,
    body: Vec<u8>,
}

#[derive(Debug, Serialize)]
struct Table<'a> {
    requests: &'a [Request],
    questions: &'a [&'a str],
}

/// What the page posts.
#[derive(Debug, PartialEq, Deserialize)]
struct Answers {
    extracted: Vec<String>,
    /// The message of what was thrown, where something was.
    ranked: Vec<Result<String, String>>,
}

fn post(path: &str, body: impl Into<Vec<u8>>) -> Request {
    Request { method: "POST", path: path.to_owned(), body: body.into() }
}

/// Every seed of the body fuzzer on every path: broken ones, deep ones and those that are no UTF-8 among them.
fn seeds() -> Result<Vec<Request>> {
    let mut requests = Vec::new();
    for entry in paths::root().join("tests/fuzz/corpus/body").read_dir()? {
        let seed = std::fs::read(entry?.path())?;
        // The first byte chooses a path there.
        let body = seed.get(1..).context("an empty seed")?;
        requests.extend(KnownPath::ALL.map(|path| post(path.name(), body)));
    }
    assert!(requests.len() > 100, "{} requests only", requests.len());
    Ok(requests)
}

fn in_browser(name: &str, requests: &[Request], questions: &[&str]) -> Result<Answers> {
    let dir = fresh_dir(&paths::target().join("e2e/browser").join(name));
    let web = paths::web()?;
    let file = |name: &str| std::fs::read(web.join(name)).with_context(|| format!("cannot read {name}"));
    let table = serde_json::to_vec(&Table { requests, questions })?;
    let files = Files::default()
        .with("/", "text/html", include_str!("browser/page.html"))
        .with("/warmpath_web.js", "text/javascript", file("warmpath_web.js")?)
        .with("/warmpath_web_bg.wasm", "application/wasm", file("warmpath_web_bg.wasm")?)
        .with("/table.json", "application/json", table);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let answer = runtime.block_on(answer_of_page(files, &dir))?;
    let answer: Result<Answers, String> = serde_json::from_slice(&answer)?;
    answer.map_err(anyhow::Error::msg)
}

fn natively(requests: &[Request], questions: &[&str]) -> Answers {
    let extract = |r: &Request| warmpath_web::extract(r.method, &r.path, &r.body);
    let rank = |question: &&str| warmpath_web::rank(question).map_err(|error| error.to_string());
    Answers {
        extracted: requests.iter().map(extract).collect(),
        ranked: questions.iter().map(rank).collect(),
    }
}

#[test]
fn a_browser_reads_requests_as_the_native_build_does() {
    let requests = seeds().unwrap();
    assert_eq!(in_browser("requests", &requests, &[]).unwrap(), natively(&requests, &[]));
}

#[test]
fn a_browser_shows_what_a_request_holds() {
    let requests = [
        post(
            "/llm/v1/chat/completions?x=1",
            r#"{"model":"m","messages":[{"role":"user","content":"ü"}],"cache_salt":"s","max_tokens":16}"#,
        ),
        post("/v1/completions", r#"{"prompt":[[1,2,3],[4]],"n":2,"add_special_tokens":false}"#),
        post("/v1/responses", r#"{"input":"Hello","instructions":"x","previous_response_id":"resp_8a1c"}"#),
        post("/v1/messages", r#"{"messages":[{"role":"user","content":"Hello"}]}"#),
        post("/v1/chat/completions", r#"{"messages":[}"#),
        post("/v1/completions", b"{\"prompt\":\"\xff\"}"),
        post("/v1/completions", r#"{"prompt":7}"#),
        post("/v1/models", "{}"),
        Request { method: "GET", path: "/v1/responses/resp_8a1c".to_owned(), body: vec![] },
    ];
    let answers = in_browser("values", &requests, &[]).unwrap();
    assert_eq!(answers, natively(&requests, &[]));
    let read: Vec<Value> = answers.extracted.iter().map(|json| serde_json::from_str(json).unwrap()).collect();
    let [chat, ids, responses, messages, broken, not_utf8, number, models, stored] = &read[..] else {
        panic!("{read:?}");
    };

    assert_eq!((&chat["outcome"], &chat["reason"]), (&json!("scored"), &Value::Null));
    let request = &chat["request"];
    assert_eq!(request["path"], "/v1/chat/completions");
    assert_eq!((&request["model"], &request["max_output_tokens"]), (&json!("m"), &json!(16)));
    assert_eq!((&request["has_cache_salt"], &request["body_bytes"]), (&json!(true), &json!(90)));
    assert_eq!(request["affinity"].as_str().unwrap().len(), 16);
    assert_eq!(request["prompt"]["kind"], "chat");
    assert_eq!(request["prompt"]["message_bytes"], json!([30]));

    let request = &ids["request"];
    assert_eq!(request["prompt"], json!({ "kind": "tokens", "counts": [3, 1] }));
    assert_eq!(request["sequences_per_prompt"], 2);
    assert_eq!((&request["add_special_tokens"], &request["has_cache_salt"]), (&json!(false), &json!(false)));

    let request = &responses["request"];
    let members = json!({ "input": 7, "instructions": 3 });
    assert_eq!(
        request["prompt"],
        json!({ "kind": "responses", "member_bytes": members, "has_media": false })
    );
    assert_eq!(request["previous_response"], "6097db5abd4cf203");
    assert_eq!(messages["request"]["prompt"]["kind"], "messages");

    for passed in [broken, not_utf8] {
        assert_eq!(*passed, json!({ "outcome": "passed", "reason": "unreadable", "request": null }));
    }
    assert_eq!((&number["outcome"], &number["reason"]), (&json!("load_only"), &json!("bad_prompt")));
    assert_eq!(*models, json!({ "outcome": "passed", "reason": "path", "request": null }));
    assert_eq!((&stored["outcome"], &stored["reason"]), (&json!("load_only"), &json!("no_prefill")));
    assert_eq!(stored["request"]["previous_response"], "6097db5abd4cf203");
}

#[test]
fn a_browser_ranks_and_says_what_does_not_fit() {
    let question = json!({
        "policy": { "name": "cost" },
        "request": { "prompt_tokens": 3136 },
        "candidates": [{ "name": "cold" }, { "name": "warm", "cached_tokens": 3072, "queued_tokens": 100 }],
    });
    let mut wrong = question.clone();
    wrong["candidates"][1]["pressure"] = json!(2);
    let questions = [question.to_string(), wrong.to_string()];
    let questions: Vec<&str> = questions.iter().map(String::as_str).collect();
    let answers = in_browser("ranking", &[], &questions).unwrap();
    assert_eq!(answers, natively(&[], &questions));
    let ranked: Value = serde_json::from_str(answers.ranked[0].as_ref().unwrap()).unwrap();
    assert_eq!(ranked["ranked"][0]["candidate"]["name"], "warm");
    assert_eq!(ranked["ranked"][0]["cost"], 164.0);
    let error = answers.ranked[1].as_ref().unwrap_err();
    assert_eq!(error, "candidates[1].pressure: expected 0 to 1, got 2");
}
