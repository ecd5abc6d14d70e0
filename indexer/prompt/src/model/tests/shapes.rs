//! Requests of every shape through a loaded model.

use super::*;
use crate::anthropic::MessagesRequest;
use crate::task::TruncationSide;

fn responses(model: &ModelPrompt, members: &str) -> Result<Vec<u32>, PromptError> {
    ids(model.tokens(ResponsesRequest { members: members.as_bytes(), ..ResponsesRequest::default() }))
}

fn messages(model: &ModelPrompt, members: &str) -> Result<Vec<u32>, PromptError> {
    ids(model.tokens(MessagesRequest { members: members.as_bytes(), ..MessagesRequest::default() }))
}

#[test]
fn responses_begin_with_two_first_tokens_and_messages_with_one() {
    let folder = Folder::new();
    let model = ModelPrompt::load(&folder.files()).unwrap();
    assert_eq!(responses(&model, r#"{"input": "a b"}"#), Ok(vec![0, 0, 1, 2]));
    let members = r#"{"messages": [{"role": "user", "content": "a b"}]}"#;
    assert_eq!(messages(&model, members), Ok(vec![0, 1, 2]));
}

#[test]
fn responses_are_truncated_to_the_models_length() {
    let folder = Folder::new();
    let model = ModelPrompt::load(&ModelFiles { max_model_len: Some(5), ..folder.files() }).unwrap();
    let cut = |text: &str| responses(&model, &format!(r#"{{"input": "{text}", "truncation": "auto"}}"#));
    assert_eq!(cut("a b"), Ok(vec![0, 0, 1, 2]));
    assert_eq!(cut("a b c").unwrap_err().reason(), "unsupported_field");
    assert_eq!(
        responses(&model, r#"{"input": "a b c"}"#),
        Ok(vec![0, 0, 1, 2, 3]),
        "by default they are not"
    );
}

#[test]
fn ids_in_a_chat_are_served_in_place_of_its_messages_where_the_release_knows_them() {
    let folder = Folder::new();
    let given = ChatRequest { prompt_token_ids: Some(&[9, 8]), ..ChatRequest::default() };
    let new = ModelPrompt::load(&folder.files()).unwrap();
    assert_eq!(chat(&new, given), Ok(vec![9, 8]));
    let truncated = ChatRequest { truncate: Truncate { tokens: Some(1), ..Truncate::default() }, ..given };
    assert_eq!(chat(&new, truncated), Ok(vec![9, 8]), "the engine does not truncate them");
    let empty = ChatRequest { prompt_token_ids: Some(&[]), ..given };
    assert_eq!(chat(&new, empty).unwrap_err().reason(), "bad_prompt");
    let old = ModelFiles { engine_version: EngineVersion::new(0, 26), ..folder.files() };
    assert_eq!(chat(&ModelPrompt::load(&old).unwrap(), given), Ok(vec![0, 1, 2, 3]));
    let between = ModelFiles { engine_version: EngineVersion::new(0, 31), ..folder.files() };
    let between = ModelPrompt::load(&between).unwrap();
    assert_eq!(chat(&between, empty), Ok(vec![0, 1, 2, 3]), "an empty list is none");
    assert_eq!(chat(&between, ChatRequest { has_media: true, ..given }), Ok(vec![9, 8]));
}

#[test]
fn ids_in_responses_and_messages_are_served_where_the_release_knows_them() {
    let folder = Folder::new();
    let params = r#""kv_transfer_params": {"prompt_token_ids": [9, 8]}"#;
    let input = format!(r#"{{"input": "a", "truncation": "auto", {params}}}"#);
    let text = format!(r#"{{"messages": [{{"role": "user", "content": "a"}}], {params}}}"#);
    let image = text.replace(r#""a""#, r#"[{"type": "image", "source": {"type": "url", "url": "u"}}]"#);
    let at = |minor| {
        let files = ModelFiles {
            engine_version: EngineVersion::new(0, minor),
            max_model_len: Some(9),
            ..folder.files()
        };
        ModelPrompt::load(&files).unwrap()
    };
    for minor in [27, 32] {
        assert_eq!(responses(&at(minor), &input), Ok(vec![9, 8]), "0.{minor}");
        assert_eq!(messages(&at(minor), &text), Ok(vec![9, 8]), "0.{minor}");
    }
    assert_ne!(responses(&at(26), &input), Ok(vec![9, 8]));
    assert_ne!(messages(&at(26), &text), Ok(vec![9, 8]));
    assert_eq!(messages(&at(31), &image), Ok(vec![9, 8]));
    let new = at(32).tokens(MessagesRequest { members: image.as_bytes(), ..MessagesRequest::default() });
    assert_ne!(new.map(|tokens| tokens.ids.into_vec()).ok(), Some(vec![9, 8]), "the medium is rendered");
    make_gpt_oss(&folder);
    assert_eq!(messages(&at(32), &text), Ok(vec![9, 8]));
    assert_ne!(responses(&at(32), &input), Ok(vec![9, 8]), "responses of gpt-oss never look at them");
}

/// Its template is asked, though it is not rendered.
#[test]
fn template_of_gpt_oss_decides_where_later_system_messages_go() {
    let folder = Folder::new();
    make_gpt_oss(&folder);
    let user = r#"{"role": "user", "content": "b"}"#;
    let late = format!(r#"{{"messages": [{user}, {{"role": "system", "content": "c"}}]}}"#);
    let early = format!(r#"{{"system": "c", "messages": [{user}]}}"#);
    let is_merged = |template: &str, minor| {
        folder.write("chat_template.jinja", template);
        let files = ModelFiles { engine_version: EngineVersion::new(0, minor), ..folder.files() };
        let model = ModelPrompt::load(&files).unwrap();
        messages(&model, &late).unwrap() == messages(&model, &early).unwrap()
    };
    // What plain Jinja does not know fails there, as the function for the date does in gpt-oss's own template.
    assert!(is_merged("{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}", 32));
    let taking = "{% for m in messages %}{{ m.content }}{% endfor %}";
    assert!(!is_merged(taking, 32));
    assert!(is_merged(taking, 23), "releases that do not ask");
    assert!(is_merged(taking, 28), "releases that look at the command line's template only");
}

#[test]
fn embeddings_have_other_defaults() {
    let folder = Folder::new();
    folder.write(
        "tokenizer_config.json",
        r#"{"chat_template": "a{% if add_generation_prompt %} b{% endif %}"}"#,
    );
    let model = ModelPrompt::load(&folder.files()).unwrap();
    assert_eq!(chat(&model, ChatRequest::default()), Ok(vec![1, 2]));
    assert_eq!(chat(&model, ChatRequest { task: Task::Embed, ..ChatRequest::default() }), Ok(vec![1]));
    let text = |task, side| {
        let truncate = Truncate { tokens: Some(2), side, ..Truncate::default() };
        ids(model.tokens(CompletionRequest { text: "a b c", add_special_tokens: None, truncate, task }))
    };
    assert_eq!(text(Task::Generate, None), Ok(vec![0, 3]));
    assert_eq!(text(Task::Embed, None), Ok(vec![0, 1]));
    assert_eq!(text(Task::Generate, Some(TruncationSide::Right)), Ok(vec![0, 1]));
    assert_eq!(text(Task::Embed, Some(TruncationSide::Left)), Ok(vec![2, 3]));
}

#[test]
fn chat_with_a_medium_is_known_up_to_the_last_special_token_before_it() {
    let folder = Folder::new();
    folder.write("tokenizer.json", &tokenizer(&["<|u|>", "<image>"]).to_string());
    folder.write(
        "tokenizer_config.json",
        r#"{"chat_template": "{% for m in messages %}<|u|>{% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}"}"#,
    );
    let model = ModelPrompt::load(&folder.files()).unwrap();
    let tokens = |messages: &str, truncate| {
        model.tokens(ChatRequest { messages: messages.as_bytes(), truncate, ..ChatRequest::default() })
    };
    let image = r#"{"type": "image_url", "image_url": {"url": ""}}"#;
    let messages = format!(
        r#"[{{"role": "user", "content": "a b"}}, {{"role": "user", "content": [{{"type": "text", "text": "c"}}, {image}]}}]"#
    );
    let known = tokens(&messages, Truncate::default()).unwrap();
    assert_eq!((known.ids.as_slice(), known.whole), ([5, 1, 2, 5].as_slice(), false));
    let truncate = Truncate { tokens: Some(9), ..Truncate::default() };
    assert_eq!(
        tokens(&messages, truncate).unwrap_err().reason(),
        "media",
        "what is cut off depends on the medium"
    );
    let written = messages.replace("a b", "a <image> b");
    let known = tokens(&written, Truncate::default()).unwrap();
    assert_eq!(known.ids.as_slice(), [5], "the medium goes where the client wrote its token");
    folder.write("tokenizer.json", &tokenizer(&[]).to_string());
    let without = ModelPrompt::load(&folder.files()).unwrap();
    let request = ChatRequest { messages: messages.as_bytes(), ..ChatRequest::default() };
    assert_eq!(without.tokens(request).unwrap_err().reason(), "media", "there is nothing to cut at");
}

#[test]
fn rules_can_be_replaced_one_by_one() {
    let folder = Folder::new();
    let overrides = |json: Json| json.as_object().unwrap().clone();
    let rule_overrides = overrides(json!({"reads_prompt_token_ids": false}));
    let model = ModelPrompt::load(&ModelFiles { rule_overrides, ..folder.files() }).unwrap();
    let given = ChatRequest { prompt_token_ids: Some(&[9, 8]), ..ChatRequest::default() };
    assert_eq!(chat(&model, given), Ok(vec![0, 1, 2, 3]));
    let gpt_oss = Folder::new();
    make_gpt_oss(&gpt_oss);
    let no_tools = ChatRequest { tools: Some(b"[]"), ..ChatRequest::default() };
    for refuses in [false, true] {
        let rule_overrides = overrides(json!({"refuses_empty_tools": refuses}));
        let model = ModelPrompt::load(&ModelFiles { rule_overrides, ..gpt_oss.files() }).unwrap();
        assert_eq!(chat(&model, no_tools).is_err(), refuses, "gpt-oss too");
    }
    let files = ModelFiles { rule_overrides: overrides(json!({"nonsense": 1})), ..folder.files() };
    let error = ModelPrompt::load(&files).err().unwrap().to_string();
    assert!(error.contains("\"nonsense\" is no rendering rule"), "{error}");
}
