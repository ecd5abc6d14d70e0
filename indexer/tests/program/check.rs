//! `warmpath check` against an engine with the right template, with another one, and with none to ask.

use serde_json::{Value, json};
use warmpath_prompt::{ChatRequest, CompletionRequest, EngineVersion, ModelFiles, ModelPrompt};

use crate::binary::{ConfigFile, warmpath, written};
use crate::http_engine::HttpEngine;
use crate::test_model::Folder;

/// An engine that renders with the model in `folder`.
async fn engine(folder: &Folder) -> HttpEngine {
    let engine = HttpEngine::start().await;
    let model = || {
        let files =
            ModelFiles { engine_version: EngineVersion::new(0, 30), ..ModelFiles::in_dir(folder.path()) };
        ModelPrompt::load(&files).unwrap()
    };
    let (tokenize, render) = (model(), model());
    engine.say("/version", json!({ "version": "0.30.0" }));
    engine.answer("/tokenize", move |body| Some(answer(&tokenize, body, "tokens")));
    engine.answer("/v1/chat/completions/render", move |body| Some(answer(&render, body, "token_ids")));
    engine.answer("/detokenize", |body| {
        Some((200, json!({ "prompt": format!("text of {}", body["tokens"]) })))
    });
    engine
}

fn answer(model: &ModelPrompt, body: &Value, key: &str) -> (u16, Value) {
    assert_eq!(body["model"], "tiny");
    let text = |key: &str| body.get(key).map(Value::to_string);
    let flag = |key: &str| body.get(key).and_then(Value::as_bool);
    let (messages, tools, kwargs) = (text("messages"), text("tools"), text("chat_template_kwargs"));
    let tokens = match body["prompt"].as_str() {
        Some(prompt) => model.tokens(CompletionRequest { text: prompt, ..CompletionRequest::default() }),
        None => model.tokens(ChatRequest {
            messages: messages.as_deref().unwrap().as_bytes(),
            tools: tools.as_deref().map(str::as_bytes),
            template_kwargs: kwargs.as_deref().map(str::as_bytes),
            add_generation_prompt: flag("add_generation_prompt"),
            continue_final_message: flag("continue_final_message"),
            ..ChatRequest::default()
        }),
    };
    match tokens {
        Ok(tokens) => (200, json!({ key: tokens.ids.as_slice() })),
        Err(error) => (400, json!({ "error": { "message": error.to_string() } })),
    }
}

/// Exit code and output.
async fn check(config: &ConfigFile, arguments: &[&str]) -> (i32, String) {
    let mut command = warmpath("check", config);
    command.args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

fn config(folder: &Folder, endpoint: &str, name: &str) -> ConfigFile {
    let yaml = format!(
        "models: [{{ name: tiny, tokenizer_dir: {:?} }}, {{ name: bare }}]\n\
         endpoints: {{ static: [{{ address: \"{endpoint}\", model: tiny }}] }}\n",
        folder.path()
    );
    written(&yaml, name)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_is_0_where_all_is_equal_and_1_with_the_first_difference_where_it_is_not() {
    let (right, wrong) = (Folder::new("check-right"), Folder::new("check-wrong"));
    wrong.use_template("{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}");
    let engine = engine(&right).await;
    let (code, text) = check(&config(&right, &engine.address, "check-equal"), &[]).await;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("engine 0.30, rendered as 0.30"), "the engine's own release is followed: {text}");
    assert!(text.contains(" 0 different") && !text.contains("first difference"), "{text}");
    let rows = text.lines().filter(|line| line.starts_with("  chat: ")).count();
    assert!(rows > 10, "{rows} chats only: {text}");

    let bad = config(&wrong, &engine.address, "check-different");
    let (code, text) = check(&bad, &["--model", "tiny"]).await;
    assert_eq!(code, 1, "{text}");
    let explained =
        text.split_once("first difference: chat: one message, /tokenize; 1 tokens agree").expect(&text).1;
    // The words `user` and `:` of the right template, `user` and the message of the wrong one.
    assert!(explained.contains("ours    [4, 1") && explained.contains("engine  [4, 2"), "{explained}");
    assert!(explained.contains("\"text of [4,2"), "decoded: {explained}");
    assert!(text.lines().any(|line| line.starts_with("  text: prose ") && line.contains("equal")), "{text}");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_without_an_engine_or_a_usable_configuration_says_so_by_its_code() {
    let folder = Folder::new("check-nobody");
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let file = config(&folder, &nobody, "check-nobody");
    let (code, text) = check(&file, &[]).await;
    assert!(code == 69 && text.contains("not reached"), "{code} {text}");
    let (code, text) = check(&file, &["--model", "other"]).await;
    assert!(code == 64 && text.contains("no model \"other\""), "{code} {text}");
    let (code, text) = check(&file, &["--model", "bare"]).await;
    assert!(code == 64 && text.contains("tokenizer_dir"), "{code} {text}");
    let (code, text) = check(&written("models: 5", "check-bad"), &[]).await;
    assert!(code == 64 && text.contains("models: found 5"), "{code} {text}");

    // Names under `invalid` are never found.
    let unknown = format!(
        "models: [{{ name: tiny, tokenizer_dir: {:?} }}]\n\
         endpoints: {{ dns: [{{ name: nobody.invalid, port: 8000, model: tiny }}] }}\n",
        folder.path()
    );
    let (code, text) = check(&written(&unknown, "check-unknown"), &[]).await;
    assert!(code == 69 && text.contains("nobody.invalid cannot be looked up"), "{code} {text}");

    // An engine that answers, but has none of the pages.
    let engine = HttpEngine::start().await;
    engine.say("/version", json!({ "version": "0.30.0" }));
    let url = format!("http://{}/", engine.address);
    let (code, text) = check(&file, &["--endpoint", &url]).await;
    assert!(code == 69 && text.contains("0 equal, 0 different"), "{code} {text}");
    engine.stop().await;
}
