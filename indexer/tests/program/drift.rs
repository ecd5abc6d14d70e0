//! A model whose prompts are not made as its engines make them is marked; one whose are, is not.

use warmpath_proto::v1::End;

use crate::engine::{BLOCK, Engine};
use crate::support::{Indexer, chat, end_with, eventually, report};
use crate::test_model::Folder;

#[tokio::test]
async fn a_model_with_a_wrong_template_is_marked_and_one_with_the_right_one_is_not() {
    let (right, wrong) = (Folder::new("drift-right"), Folder::new("drift-wrong"));
    wrong.use_template("{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}");
    let yaml = format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n\
         models: [{{ name: right, tokenizer_dir: {:?} }}, {{ name: wrong, tokenizer_dir: {:?} }}]\n\
         scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\n\
         endpoints:\n  static:\n    - {{ address: \"10.0.0.1:8000\", model: right }}\n    - {{ address: \"10.0.0.2:8000\", model: wrong }}\n",
        right.path(),
        wrong.path()
    );
    let indexer = Indexer::start(&yaml).await;
    let mut client = indexer.client().await;
    let messages = [
        r#"[{"role":"user","content":"a b c"}]"#,
        r#"[{"role":"system","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c d"}]"#,
    ];
    // Both models' engines have the right template, so what it gives is what they report.
    for messages in messages.iter().cycle().take(10) {
        let truth = client.score(chat("right", messages)).await.unwrap().into_inner();
        let other = client.score(chat("wrong", messages)).await.unwrap().into_inner();
        assert!(truth.prompt_tokens > 0 && truth.prompt_tokens != other.prompt_tokens);
        let told = |endpoint: &str| End {
            endpoint: endpoint.into(),
            prompt_tokens: Some(truth.prompt_tokens),
            ..End::default()
        };
        let ends = vec![
            end_with(truth.decision_id, told("10.0.0.1:8000")),
            end_with(other.decision_id, told("10.0.0.2:8000")),
        ];
        report(&mut client, ends).await;
    }
    let compared = async |model: &str, endpoint: &str, result: &str| {
        let labels = format!("model=\"{model}\",endpoint=\"{endpoint}\",result=\"{result}\"");
        indexer.metric(&format!("warmpath_prompt_tokens_compared_total{{{labels}}}")).await
    };
    assert_eq!(compared("right", "10.0.0.1:8000", "equal").await, 10.0);
    assert_eq!(compared("wrong", "10.0.0.2:8000", "fewer").await, 10.0);
    assert_eq!(indexer.metric("warmpath_prompt_drift{model=\"right\"}").await, 0.0);
    assert_eq!(indexer.metric("warmpath_prompt_drift{model=\"wrong\"}").await, 1.0);
    let state = indexer.state().await;
    assert_eq!(state["models"][0]["drift"]["mark"], "agreeing");
    assert_eq!(state["models"][1]["drift"]["mark"], "drifting");
    let example = &state["models"][1]["drift"]["example"];
    assert!(example["ours"].as_u64() < example["theirs"].as_u64(), "{example}");
    indexer.stop().await;
}

/// Ids that a client gave are nobody's rendering, and of several prompts an engine reports the sum.
#[tokio::test]
async fn requests_that_say_nothing_of_rendering_are_not_compared() {
    let folder = Folder::new("drift-silent");
    let yaml = format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n\
         models: [{{ name: tiny, tokenizer_dir: {:?} }}]\n\
         scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\n\
         endpoints: {{ static: [{{ address: \"10.0.0.1:8000\" }}] }}\n",
        folder.path()
    );
    let indexer = Indexer::start(&yaml).await;
    let mut client = indexer.client().await;
    let texts = warmpath_proto::v1::TextPrompts { texts: vec!["a b".into(), "c".into()] };
    let two = warmpath_proto::v1::ScoreRequest {
        prompt: Some(warmpath_proto::v1::score_request::Prompt::Texts(texts)),
        ..chat("tiny", "[]")
    };
    for request in [crate::support::tokens(0..100), two] {
        let answer = client.score(request).await.unwrap().into_inner();
        assert!(answer.prompt_tokens > 0);
        let told = End { endpoint: "10.0.0.1:8000".into(), prompt_tokens: Some(7), ..End::default() };
        report(&mut client, vec![end_with(answer.decision_id, told)]).await;
    }
    assert!(indexer.state().await["models"][0]["drift"].is_null());
    indexer.stop().await;
}

/// What an engine loads from host memory counts as cached in its answers, and its events of the main pool never told of
/// it: that says nothing of our tokens.
#[tokio::test]
async fn an_engine_that_offloads_its_cache_raises_no_alarm_by_what_it_finds() {
    let folder = Folder::new("drift-offload");
    let mut engines = [Engine::start(), Engine::start()];
    let names = ["10.0.0.1:8000", "10.0.0.2:8000"];
    let yaml = format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n\
         models: [{{ name: tiny, tokenizer_dir: {:?} }}]\n\
         scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\n\
         endpoints:\n  static:\n    - {{ address: \"{}\", events: \"{}\" }}\n    - {{ address: \"{}\", events: \"{}\" }}\n",
        folder.path(),
        names[0],
        engines[0].events,
        names[1],
        engines[1].events
    );
    let indexer = Indexer::start(&yaml).await;
    engines[1].offload(7);
    for engine in &mut engines {
        engine.store(0..BLOCK);
    }
    // Two in the main pools, and the one in host memory.
    let are_told = async || indexer.state().await["index"]["references"] == 3;
    eventually("events are indexed", are_told).await;
    let mut client = indexer.client().await;
    let messages = format!(r#"[{{"role":"user","content":"{}"}}]"#, "a b ".repeat(20));
    for endpoint in names.iter().cycle().take(10) {
        let answer = client.score(chat("tiny", &messages)).await.unwrap().into_inner();
        let told = End { endpoint: (*endpoint).into(), cached_tokens: Some(10 * BLOCK), ..End::default() };
        report(&mut client, vec![end_with(answer.decision_id, told)]).await;
    }
    let drift = &indexer.state().await["models"][0]["drift"];
    assert_eq!(drift["differing_caches"], 5, "those of the engine without another medium: {drift}");
    indexer.stop().await;
}
