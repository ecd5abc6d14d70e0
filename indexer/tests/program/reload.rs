//! Models change while the program runs: when asked to, and when engines report another release.

use hyper::Method;
use serde_json::{Value, json};

use crate::binary::Program;
use crate::http_engine::HttpEngine;
use crate::support::{Indexer, admin, chat, eventually};
use crate::test_model::Folder;

const MESSAGES: &str =
    r#"[{"role":"system","content":"a b"},{"role":"developer","content":"c"},{"role":"user","content":"d"}]"#;

fn config(models: &str) -> String {
    format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\nmodels: [{models}]\n\
         scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\n\
         endpoints: {{ static: [{{ address: \"10.0.0.1:8000\", model: tiny }}] }}\n"
    )
}

async fn tokens_of(indexer: &Indexer, model: &str) -> (u32, String) {
    let answer = indexer.client().await.score(chat(model, MESSAGES)).await.unwrap().into_inner();
    (answer.prompt_tokens, answer.reason)
}

#[tokio::test]
async fn a_reload_reads_files_and_names_again_and_keeps_the_old_ones_where_it_fails() {
    let folder = Folder::new("reload");
    let tiny = format!("{{ name: tiny, tokenizer_dir: {:?} }}", folder.path());
    let file = folder.path().join("warmpath.yaml");
    let indexer = Indexer::start_from(&config(&tiny), Some(file.clone())).await;
    let (before, _) = tokens_of(&indexer, "tiny").await;
    assert!(before > 0);
    assert_eq!(tokens_of(&indexer, "second").await.1, "unknown_model");
    assert_eq!(indexer.post("/reload").await.0, 422, "there is no file");
    assert_eq!(indexer.get("/reload").await.0, 405, "reading changes nothing");

    // Another template, a second model, an adapter and an alias.
    folder.use_template("{% for m in messages %}{{ m.content }} {% endfor %}");
    let models = format!(
        "{{ name: second }}, {{ name: tiny, tokenizer_dir: {:?}, aliases: [other], adapters: [sql] }}",
        folder.path()
    );
    std::fs::write(&file, config(&models)).unwrap();
    let (status, page) = indexer.post("/reload").await;
    let changed: Value = serde_json::from_str(&page).expect(&page);
    let expected = json!({
        "models": ["second", "tiny"], "added": ["second"], "removed": [], "needs_restart": [],
    });
    assert_eq!((status, &changed), (200, &expected));
    let (after, _) = tokens_of(&indexer, "tiny").await;
    assert!(0 < after && after < before, "{after} tokens after, {before} before");
    for name in ["other", "sql"] {
        assert_eq!(tokens_of(&indexer, name).await.0, after, "{name}");
    }
    assert_eq!(tokens_of(&indexer, "second").await.1, "no_tokenizer");

    // A mistake in the file, a broken template: everything stays.
    let mistake = config("{ name: tiny, color: red }");
    folder.use_template("{% for");
    for (text, part) in [(mistake, "models[0].color"), (config(&models), "chat_template.jinja")] {
        std::fs::write(&file, text).unwrap();
        let (status, why) = indexer.post("/reload").await;
        assert!(status == 422 && why.contains(part), "{status} {why}");
        assert_eq!(tokens_of(&indexer, "sql").await.0, after);
    }
    assert!(indexer.state().await["last_reload"]["error"].as_str().unwrap().contains("chat_template.jinja"));

    // A model that is removed is no model any more; what cannot be changed is said.
    folder.use_template("{{ messages[0].content }}");
    let less = format!("{}lifecycle: {{ drain_ms: 77 }}\n", config(&tiny));
    std::fs::write(&file, less).unwrap();
    let (_, page) = indexer.post("/reload").await;
    let changed: Value = serde_json::from_str(&page).expect(&page);
    assert_eq!((&changed["removed"], &changed["needs_restart"]), (&json!(["second"]), &json!(["lifecycle"])));
    for name in ["second", "other", "sql"] {
        assert_eq!(tokens_of(&indexer, name).await.1, "unknown_model", "{name}");
    }
    let count = async |result: &str| {
        indexer.metric(&format!("warmpath_config_reloads_total{{result=\"{result}\"}}")).await
    };
    assert_eq!((count("applied").await, count("refused").await), (2.0, 3.0));
    indexer.stop().await;
}

/// The signal does what the admin page does.
#[tokio::test]
async fn a_hangup_reloads() {
    let mut program = Program::start(&config("{ name: tiny }"), "hangup");
    let names = async || {
        let (_, state) = admin(program.bound, Method::GET, "/state").await;
        let state: Value = serde_json::from_str(&state).unwrap();
        let models = state["models"].as_array().unwrap().clone();
        models.iter().map(|model| model["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["tiny"]);
    program.rewrite(&config("{ name: tiny }, { name: second }"));
    program.signal("-HUP");
    eventually("it has reloaded", async || names().await == ["tiny", "second"]).await;
    program.signal("-TERM");
    assert!(program.exited().await.success());
}

/// Without a configured release, prompts are rendered as the engines' own release does it.
#[tokio::test]
async fn the_engines_release_decides_how_prompts_are_rendered() {
    let folder = Folder::new("release");
    let engine = HttpEngine::start().await;
    engine.say("/version", json!({ "version": "0.20.1" }));
    let yaml = |release: &str| {
        format!(
            "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n\
             models: [{{ name: tiny, tokenizer_dir: {:?}{release} }}]\n\
             scrape: {{ interval_ms: 60000, identity_interval_ms: 20 }}\n\
             endpoints: {{ static: [{{ address: \"{}\" }}] }}\n",
            folder.path(),
            engine.address
        )
    };
    let indexer = Indexer::start(&yaml("")).await;
    let release = async |indexer: &Indexer| {
        let state = indexer.state().await;
        let model = &state["models"][0];
        (model["engine_version"].as_str().unwrap().to_owned(), model["engine_version_from"].clone())
    };
    let (old, new) = (("0.20".to_owned(), json!("engines")), ("0.32".to_owned(), json!("engines")));
    eventually("the release is known", async || release(&indexer).await == old).await;
    let (with_old, _) = tokens_of(&indexer, "tiny").await;
    engine.say("/version", json!({ "version": "0.32.0" }));
    eventually("the new release is known", async || release(&indexer).await == new).await;
    let (with_new, _) = tokens_of(&indexer, "tiny").await;
    // The new one merges the developer's message into the system's.
    assert!(with_new < with_old, "{with_new} tokens with the new release, {with_old} with the old one");

    let told = Indexer::start(&yaml(", engine_version: \"0.20\"")).await;
    let asked = "warmpath_engine_questions_total{question=\"version\",result=\"answered\"}";
    eventually("the engine was asked", async || told.metric(asked).await >= 2.0).await;
    assert_eq!(release(&told).await, ("0.20".to_owned(), json!("configuration")));
    assert_eq!(tokens_of(&told, "tiny").await.0, with_old);
    told.stop().await;
    indexer.stop().await;
    engine.stop().await;
}
