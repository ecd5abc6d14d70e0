//! Responses, messages, embeddings and the render endpoints, on a tokenizer of a few words.

use std::path::PathBuf;

use engine_emulator::{Emulator, EmulatorConfig, OutputVocabulary};
use serde_json::{Value, json};

use crate::client::{config, get, post, start};

/// A folder with a tokenizer whose tokens are words, and a template that writes `<s>` before every message.
fn words(name: &str) -> PathBuf {
    const WORDS: &str =
        "<unk> <s> system user assistant tool hello river stone again one two three a b c d e f g h i";
    let vocabulary: serde_json::Map<String, Value> =
        WORDS.split(' ').zip(0..).map(|(word, id)| (word.to_owned(), json!(id))).collect();
    let added = json!([{"id": 1, "content": "<s>", "special": true, "single_word": false, "lstrip": false,
                        "rstrip": false, "normalized": false}]);
    let single =
        json!([{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]);
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null,
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single,
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    });
    let template = "{% for m in messages %}<s> {{ m.role }} {{ m.content }} {% endfor %}\
                    {% if add_generation_prompt %}<s> assistant{% endif %}";
    let dir = std::env::temp_dir().join(format!("engine-emulator-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(dir.join("tokenizer_config.json"), json!({"chat_template": template}).to_string())
        .unwrap();
    dir
}

async fn with_words(name: &str, change: impl FnOnce(&mut EmulatorConfig)) -> Emulator {
    let mut config = EmulatorConfig { tokenizer: Some(words(name)), ..config() };
    change(&mut config);
    start(config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn chats_are_tokenized_as_they_are_served() {
    let emulator = with_words("tokenize", |_| {}).await;
    let user = json!({"role": "user", "content": "hello"});
    let developer = json!({"role": "developer", "content": "one"});
    for (body, ids) in [
        (json!({"messages": [user, developer]}), &[1, 2, 10, 1, 3, 6, 1, 4][..]),
        (
            json!({"messages": [user], "add_generation_prompt": false, "continue_final_message": true}),
            &[1, 3, 6][..],
        ),
    ] {
        let answer = post(&emulator, "/tokenize", &body).await.json();
        assert_eq!(answer["tokens"], json!(ids), "{body}");
    }
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_goes_on_from_the_one_before_it() {
    let emulator = with_words("responses", |c| c.output = OutputVocabulary::Letters).await;
    let first = json!({"input": "hello river", "instructions": "one", "max_output_tokens": 2});
    let first = post(&emulator, "/v1/responses", &first).await.json();
    let id = first["id"].as_str().unwrap();
    assert!(id.starts_with("resp_"), "{id}");
    // <s> of the tokenizer, then system, one; user, hello, river; assistant: each behind a <s>.
    assert_eq!(first["usage"]["input_tokens"], 1 + 3 + 4 + 2);
    assert_eq!(first["usage"]["output_tokens"], 2);
    let stored = get(&emulator, &format!("/v1/responses/{id}")).await.json();
    assert_eq!(stored["output"], first["output"]);

    let next = json!({"input": [{"role": "user", "content": "again"}], "previous_response_id": id});
    let next = post(&emulator, "/v1/responses", &next).await.json();
    assert_eq!(next["previous_response_id"], id);
    // Without the instructions; the letters of the first answer are one word, which nobody knows.
    assert_eq!(next["usage"]["input_tokens"], 1 + 4 + 3 + 3 + 2);

    for (path, body) in [
        ("/v1/responses", Some(json!({"input": "a", "previous_response_id": "resp_1"}))),
        ("/v1/responses/resp_1", None),
    ] {
        let answer = match body {
            Some(body) => post(&emulator, path, &body).await,
            None => get(&emulator, path).await,
        };
        assert_eq!(answer.status, 404);
        assert!(answer.text().contains("Response with id 'resp_1' not found."), "{}", answer.text());
    }
    let unstored = post(&emulator, "/v1/responses", &json!({"input": "a", "store": false})).await.json();
    let id = unstored["id"].as_str().unwrap();
    assert_eq!(get(&emulator, &format!("/v1/responses/{id}")).await.status, 404);
    emulator.stop().await;
}

/// Names and data of server-sent events.
fn named_events(text: &str) -> Vec<(String, Value)> {
    let events = text.split("\n\n").filter(|event| !event.is_empty());
    let one = |event: &str| {
        let (name, data) = event.split_once('\n').unwrap();
        let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        (name.strip_prefix("event: ").unwrap().to_owned(), data)
    };
    events.map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_is_streamed_with_its_id_first_and_its_usage_last() {
    let emulator = with_words("streamed", |_| {}).await;
    let body = json!({"input": "hello river", "max_output_tokens": 3, "stream": true});
    let events = named_events(post(&emulator, "/v1/responses", &body).await.text());
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let delta = "response.output_text.delta";
    assert_eq!(names, ["response.created", delta, delta, delta, "response.completed"]);
    let [created, completed] = [&events[0].1, &events[4].1];
    assert_eq!(created["response"]["id"], completed["response"]["id"]);
    assert_eq!(completed["response"]["usage"]["output_tokens"], 3);
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_counted_and_answered() {
    let emulator = with_words("messages", |c| c.block_size = 4).await;
    let messages = json!([{"role": "user", "content": [{"type": "text", "text": "hello"}]}]);
    let mut body = json!({"system": "one two", "messages": messages, "max_tokens": 2});
    let counted = post(&emulator, "/v1/messages/count_tokens", &body).await.json();
    assert_eq!(counted, json!({"input_tokens": 4 + 3 + 2}), "without special tokens of the tokenizer");
    for (input, cached) in [(9, 0), (1, 8)] {
        let usage = post(&emulator, "/v1/messages", &body).await.json()["usage"].clone();
        assert_eq!(
            (&usage["input_tokens"], &usage["cache_read_input_tokens"]),
            (&json!(input), &json!(cached))
        );
    }
    body["stream"] = json!(true);
    let events = named_events(post(&emulator, "/v1/messages", &body).await.text());
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let delta = "content_block_delta";
    let expected = [
        "message_start",
        "content_block_start",
        delta,
        delta,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, expected);
    assert_eq!(events[5].1["usage"]["cache_read_input_tokens"], 8);
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn embeddings_compute_and_cache_their_prompts() {
    let emulator = with_words("embeddings", |c| c.block_size = 4).await;
    let body = json!({"input": ["hello river stone again one two", "hello"]});
    for _ in 0..2 {
        let answer = post(&emulator, "/v1/embeddings", &body).await.json();
        assert_eq!(answer["data"].as_array().unwrap().len(), 2);
        assert_eq!(answer["usage"]["prompt_tokens"], 7 + 2, "each with the tokenizer's <s>");
    }
    let counters = emulator.state().await.ranks[0].counters;
    assert_eq!((counters.prefix_queries, counters.prefix_hits), (18, 4));
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rendered_ids_come_in_the_form_of_the_release() {
    let chat = json!({"messages": [{"role": "user", "content": "hello"}]});
    let cases = [
        ("0.14", false, 404, Value::Null),
        ("0.17", false, 200, json!([[], [{"prompt_token_ids": [1, 3, 6, 1, 4]}]])),
        ("0.29", false, 200, json!({"token_ids": [1, 3, 6, 1, 4]})),
        ("0.32", false, 403, Value::Null),
        ("0.32", true, 200, json!({"token_ids": [1, 3, 6, 1, 4]})),
    ];
    for (version, scale_out, status, expected) in cases {
        let change = |c: &mut EmulatorConfig| {
            c.vllm_version = version.parse().unwrap();
            c.scale_out = scale_out;
        };
        let emulator = with_words("render", change).await;
        let answer = post(&emulator, "/v1/chat/completions/render", &chat).await;
        assert_eq!(answer.status, status, "{version}");
        if status == 200 {
            assert_eq!(answer.json(), expected, "{version}");
            let completion = json!({"prompt": ["hello", "river"]});
            let answer = post(&emulator, "/v1/completions/render", &completion).await.json();
            assert_eq!(answer.as_array().unwrap().len(), 2, "{version}");
        }
        emulator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_change_the_prompt_are_followed() {
    let emulator = with_words("fields", |c| c.scale_out = true).await;
    let ids = async |path: &str, body: Value| {
        let answer = post(&emulator, path, &body).await.json();
        answer.pointer("/token_ids").or_else(|| answer.pointer("/0/token_ids")).cloned().unwrap()
    };
    let chat = "/v1/chat/completions/render";
    let messages = json!([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "river"}]);
    let goes_on =
        json!({"messages": messages, "add_generation_prompt": false, "continue_final_message": true});
    assert_eq!(ids(chat, goes_on).await, json!([1, 3, 6, 1, 4, 7]));
    let bare = json!({"messages": messages, "add_generation_prompt": false});
    assert_eq!(ids(chat, bare).await, json!([1, 3, 6, 1, 4, 7]));
    let completion = "/v1/completions/render";
    for (extra, expected) in [
        (json!({}), json!([1, 6, 7, 8])),
        (json!({"add_special_tokens": false}), json!([6, 7, 8])),
        (json!({"truncate_prompt_tokens": 2}), json!([7, 8])),
        (json!({"truncate_prompt_tokens": 2, "truncation_side": "right"}), json!([1, 6])),
    ] {
        let mut body = json!({"prompt": "hello river stone"});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        assert_eq!(ids(completion, body).await, expected, "{extra}");
    }
    emulator.stop().await;
}
