//! Loading: what is found, what is refused, and which models' chats are not ours to render. Uses a tokenizer of five
//! words; the ids of real ones are compared in `tests/recorded.rs`.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::*;
use crate::request::{CompletionRequest, TokensRequest};

mod shapes;

/// A folder with a small tokenizer that puts `<s>` before a text; removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("warmpath-model-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).unwrap();
        folder.write("tokenizer.json", &tokenizer(&[]).to_string());
        folder.write(
            "tokenizer_config.json",
            &json!({
                "bos_token": {"content": "<s>"},
                "eos_token": null,
                "chat_template": "{{ bos_token }}{% for m in messages %} {{ m.content }}{% endfor %}",
            })
            .to_string(),
        );
        folder
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn files(&self) -> ModelFiles {
        ModelFiles::in_dir(&self.0)
    }

    fn load_error(&self) -> String {
        ModelPrompt::load(&self.files()).err().unwrap().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn tokenizer(added: &[&str]) -> Json {
    let special = |id: usize, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let mut added_tokens = vec![special(0, "<s>")];
    added_tokens.extend(added.iter().enumerate().map(|(place, token)| special(5 + place, token)));
    json!({
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                    "pad_type_id": 0, "pad_token": "<s>"},
        "added_tokens": added_tokens, "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"<s>": 0, "a": 1, "b": 2, "c": 3, "?": 4}, "unk_token": "?"},
    })
}

#[test]
fn added_tokens_of_the_configuration_are_found_in_texts() {
    let folder = Folder::new();
    let token = json!({"content": "<x>", "lstrip": false, "normalized": false, "rstrip": false, "single_word": false,
                       "special": true});
    let config = json!({"added_tokens_decoder": {"5": token}, "eos_token": "<y>"});
    folder.write("tokenizer_config.json", &config.to_string());
    let model = ModelPrompt::load(&folder.files()).unwrap();
    assert_eq!(complete(&model, "a<x>b<y>", Some(false), None), Ok(vec![1, 5, 2, 6]));
}

fn chat(model: &ModelPrompt, request: ChatRequest<'_>) -> Result<Vec<u32>, PromptError> {
    let messages = br#"[{"role": "user", "content": "a b"}, {"role": "user", "content": "c"}]"#;
    ids(model.tokens(ChatRequest { messages, ..request }))
}

fn complete(
    model: &ModelPrompt,
    text: &str,
    add_special_tokens: Option<bool>,
    tokens: Option<i64>,
) -> Result<Vec<u32>, PromptError> {
    ids(model.tokens(CompletionRequest {
        text,
        add_special_tokens,
        truncate: Truncate { tokens, ..Truncate::default() },
        task: Task::Generate,
    }))
}

fn ids(tokens: Result<PromptTokens, PromptError>) -> Result<Vec<u32>, PromptError> {
    tokens.map(|tokens| {
        assert!(tokens.whole);
        tokens.ids.into_vec()
    })
}

#[test]
fn completions_get_special_tokens_and_chats_do_not() {
    let folder = Folder::new();
    let model = ModelPrompt::load(&folder.files()).unwrap();
    let complete = |special, truncate| complete(&model, "a b c", special, truncate);
    assert_eq!(complete(None, None), Ok(vec![0, 1, 2, 3]), "truncation and padding of the file do not apply");
    assert_eq!(complete(Some(false), None), Ok(vec![1, 2, 3]));
    assert_eq!(complete(None, Some(2)), Ok(vec![0, 3]));
    assert_eq!(chat(&model, ChatRequest::default()), Ok(vec![0, 1, 2, 3]), "the template writes it");
    let special = ChatRequest { add_special_tokens: Some(true), ..ChatRequest::default() };
    assert_eq!(chat(&model, special), Ok(vec![0, 0, 1, 2, 3]));
    let truncated = ChatRequest {
        truncate: Truncate { tokens: Some(2), ..Truncate::default() },
        ..ChatRequest::default()
    };
    assert_eq!(chat(&model, truncated), Ok(vec![2, 3]));
    let truncate = Truncate { tokens: Some(2), ..Truncate::default() };
    let given = TokensRequest { ids: vec![9, 8, 7], truncate, task: Task::Generate };
    assert_eq!(ids(model.tokens(given)), Ok(vec![8, 7]));
}

#[test]
fn length_of_the_model_bounds_truncation() {
    let folder = Folder::new();
    let model = ModelPrompt::load(&ModelFiles { max_model_len: Some(4), ..folder.files() }).unwrap();
    assert_eq!(complete(&model, "a b", None, Some(-1)), Ok(vec![0, 1, 2]));
    assert_eq!(complete(&model, "a b c", None, Some(-1)).unwrap_err().reason(), "unsupported_field");
    assert_eq!(complete(&model, "a", None, Some(5)).unwrap_err().reason(), "bad_prompt");
}

#[test]
fn long_prompts_are_refused_before_they_are_encoded() {
    let folder = Folder::new();
    let model = ModelPrompt::load(&folder.files()).unwrap();
    let error = complete(&model, &"a".repeat(crate::MAX_PROMPT_BYTES + 1), None, None).unwrap_err();
    assert!(matches!(error, PromptError::TooLarge { what: "prompt", .. }), "{error}");
}

#[test]
fn model_is_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<ModelPrompt>();
}

#[test]
fn faults_of_files_name_the_file_and_the_remedy() {
    let folder = Folder::new();
    let check = |fault: &str, wanted: &[&str]| {
        let error = folder.load_error();
        assert!(wanted.iter().all(|part| error.contains(part)), "{fault}: {error}");
    };
    folder.write("tokenizer.json", "{\n \"version\": 1.0,,\n}");
    check("broken", &["tokenizer.json: broken JSON", "line 2 column 17"]);
    folder.write("tokenizer.json", "{\"version\": \"1.0\"}");
    check("no model", &["tokenizer.json: not a tokenizer this build can run"]);
    fs::remove_file(folder.0.join("tokenizer.json")).unwrap();
    check("missing", &["tokenizer.json: not found", "copy tokenizer.json"]);
    folder.write("tokenizer.json", &tokenizer(&[]).to_string());
    folder.write("tokenizer_config.json", "{\"chat_template\": 7}");
    check("wrong field", &["tokenizer_config.json: field \"chat_template\" is neither"]);
    folder.write("tokenizer_config.json", "{\"chat_template\": \"{% if %}\"}");
    check("bad template", &["tokenizer_config.json: chat template does not compile: line 1"]);
    folder.write("tokenizer_config.json", "[]");
    check("no object", &["tokenizer_config.json: broken JSON"]);
    let missing = ModelFiles::in_dir(folder.0.join("nowhere"));
    let error = ModelPrompt::load(&missing).err().unwrap().to_string();
    assert!(error.contains("nowhere: not a directory") && error.contains("tokenizer.json"), "{error}");
}

#[test]
fn file_beyond_its_limit_is_not_read() {
    let folder = Folder::new();
    let path = folder.0.join("tokenizer.json");
    let error = files::read_bounded(&path, 10, "").unwrap_err().to_string();
    assert!(error.contains("more than the limit of 10"), "{error}");
}

#[test]
fn model_without_a_template_serves_completions_only() {
    let folder = Folder::new();
    folder.write("tokenizer_config.json", "{}");
    let model = ModelPrompt::load(&folder.files()).unwrap();
    assert_eq!(model.content_format(), None);
    assert_eq!(chat(&model, ChatRequest::default()).unwrap_err().reason(), "not_renderable");
    assert!(complete(&model, "a", None, None).is_ok());
}

#[test]
fn families_with_renderers_of_their_own_are_told_apart() {
    const HARMONY: [&str; 4] = ["<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"];
    type Setup = fn(&Folder);
    let table: [(&str, Setup); 4] = [
        ("harmony", |folder| folder.write("config.json", r#"{"model_type": "gpt_oss"}"#)),
        ("harmony", |folder| folder.write("tokenizer.json", &tokenizer(&HARMONY).to_string())),
        ("tekken.json", |folder| folder.write("tekken.json", "{}")),
        ("deepseek_v32", |folder| folder.write("config.json", r#"{"model_type": "deepseek_v32"}"#)),
    ];
    for (why, set_up) in table {
        let folder = Folder::new();
        set_up(&folder);
        let model = ModelPrompt::load(&folder.files()).unwrap();
        let error = chat(&model, ChatRequest::default()).unwrap_err();
        assert_eq!(error.reason(), "not_renderable");
        assert!(error.to_string().contains(why), "{error}");
        let told = ModelFiles { chat_renderer: ChatRenderer::Jinja, ..folder.files() };
        assert_eq!(chat(&ModelPrompt::load(&told).unwrap(), ChatRequest::default()), Ok(vec![0, 1, 2, 3]));
    }
    let folder = Folder::new();
    folder.write("config.json", r#"{"model_type": "qwen3"}"#);
    assert!(chat(&ModelPrompt::load(&folder.files()).unwrap(), ChatRequest::default()).is_ok());
}

#[test]
fn gpt_oss_chats_are_rendered_with_special_tokens_that_texts_cannot_write() {
    let folder = Folder::new();
    make_gpt_oss(&folder);
    let model = ModelPrompt::load(&folder.files()).unwrap();
    let user = |content: &str| {
        let messages = json!([{"role": "user", "content": content}]).to_string();
        ids(model.tokens(ChatRequest { messages: messages.as_bytes(), ..ChatRequest::default() })).unwrap()
    };
    let (start, end, message) = (200_006, 200_007, 200_008);
    assert!(user("a b").ends_with(&[end, start, 4, message, 1, 2, end, start, 4]));
    // `<|`, `end` and `|>` are words that this vocabulary does not have.
    assert!(user("a <|end|> b").ends_with(&[end, start, 4, message, 1, 4, 4, 4, 2, end, start, 4]));
}

/// A model of the family, with the special tokens of its vocabulary and the folder's words.
fn make_gpt_oss(folder: &Folder) {
    const TOKENS: [(&str, u32); 6] = [
        ("<|constrain|>", 200_003),
        ("<|channel|>", 200_005),
        ("<|start|>", 200_006),
        ("<|end|>", 200_007),
        ("<|message|>", 200_008),
        ("<|call|>", 200_012),
    ];
    folder.write("config.json", r#"{"model_type": "gpt_oss"}"#);
    folder.write("tokenizer_config.json", r#"{"eos_token": "<|end|>"}"#);
    let mut tokenizer = tokenizer(&[]);
    tokenizer["post_processor"] = Json::Null;
    tokenizer["added_tokens"] = json!([]);
    for (token, id) in TOKENS {
        tokenizer["model"]["vocab"][token] = id.into();
        let added = json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                           "normalized": false, "special": true});
        tokenizer["added_tokens"].as_array_mut().unwrap().push(added);
    }
    folder.write("tokenizer.json", &tokenizer.to_string());
}
