//! Requests that end in a reason, and settings of a deployment. What becomes of ordinary and odd requests is compared
//! with the engine's own code in `tests/recorded.rs`.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::limits::MAX_PROMPT_BYTES;
use crate::template::SystemClock;
use crate::version::{ContentDetection, EngineVersion};

mod media;

const TEMPLATE: &str = "{{ messages | tojson }}{{ tools | tojson }}{{ flag | default('-') }}";

fn settings() -> Settings {
    Settings {
        rules: RenderingRules::of(EngineVersion::new(0, 32)),
        content_format: None,
        trust_request_template: false,
        default_template_kwargs: Map::new(),
        exclude_tools_when_none: false,
        special_tokens: Vec::new(),
        clock: Arc::new(SystemClock::local()),
    }
}

fn render_with(settings: &Settings, request: &ChatRequest<'_>) -> Result<String, PromptError> {
    let clock = Arc::clone(&settings.clock);
    let template = ChatTemplate::compile(TEMPLATE, ContentDetection::Messages, clock).unwrap();
    render(settings, |_| Some(&template), read(settings, request)?).map(|rendered| rendered.text)
}

fn chat(messages: &[u8]) -> ChatRequest<'_> {
    ChatRequest { messages, ..ChatRequest::default() }
}

const HI: &[u8] = br#"[{"role": "user", "content": "hi"}]"#;
const HI_RENDERED: &str = r#"[{"role": "user", "content": "hi"}]"#;

#[test]
fn fields_that_depend_on_unknown_settings_end_in_unsupported_field() {
    let own_template = ChatRequest { chat_template: Some("{{ 1 }}"), ..chat(HI) };
    let kwargs = |json: &'static [u8]| ChatRequest { template_kwargs: Some(json), ..chat(HI) };
    for request in [
        own_template,
        kwargs(br#"{"chat_template": "x"}"#),
        kwargs(br#"{"tokenize": true}"#),
        kwargs(br#"{"tools": []}"#),
        kwargs(br#"{"add_generation_prompt": false}"#),
        kwargs(br#"{"continue_final_message": true}"#),
    ] {
        let error = render_with(&settings(), &request).unwrap_err();
        assert_eq!(error.reason(), "unsupported_field", "{request:?}: {error}");
    }
    let same = kwargs(br#"{"add_generation_prompt": true, "flag": 1}"#);
    assert_eq!(render_with(&settings(), &same), Ok(format!("{HI_RENDERED}null1")));
}

#[test]
fn own_template_of_a_request_is_used_only_where_it_is_trusted() {
    let request = ChatRequest { chat_template: Some("{{ messages | length }}"), ..chat(HI) };
    let trusting = Settings { trust_request_template: true, ..settings() };
    assert_eq!(render_with(&trusting, &request), Ok("1".into()));
    let broken = ChatRequest { chat_template: Some("{% if %}"), ..chat(HI) };
    assert_eq!(render_with(&trusting, &broken).unwrap_err().reason(), "unsupported_field");
}

/// The stack ended, and with it the process.
#[test]
fn own_template_may_put_values_into_each_other() {
    let trusting = Settings { trust_request_template: true, ..settings() };
    for pair in ["[ns.v]", "{'a': ns.v}", "(ns.v, 1)"] {
        let template = format!(
            "{{% set ns = namespace(v=[]) %}}{{% for a in range(100000) %}}{{% set ns.v = {pair} %}}{{% endfor %}}done"
        );
        let request = ChatRequest { chat_template: Some(&template), ..chat(HI) };
        assert_eq!(render_with(&trusting, &request), Ok("done".into()));
    }
}

#[test]
fn messages_of_the_wrong_shape_are_refused_without_quoting_them() {
    for messages in [
        &b""[..],
        b"null",
        b"{}",
        b"[]",
        b"[1]",
        b"[{}]",
        br#"[{"role": 1}]"#,
        br#"[{"role": "user", "content": "secret"#,
        b"[{\"role\": \"user\", \"content\": \"\xff\"}]",
        br#"[{"role": "user", "content": {"secret": 1}}]"#,
        br#"[{"role": "assistant", "tool_calls": "secret"}]"#,
    ] {
        let error = render_with(&settings(), &chat(messages)).unwrap_err();
        assert_eq!(error.reason(), "bad_prompt", "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn fields_beyond_the_limit_are_not_parsed() {
    let long = vec![b' '; MAX_PROMPT_BYTES + 1];
    let error = render_with(&settings(), &chat(&long)).unwrap_err();
    assert_eq!(error, PromptError::TooLarge { what: "messages", limit: MAX_PROMPT_BYTES });
    let tools = ChatRequest { tools: Some(&long), ..chat(HI) };
    assert!(matches!(render_with(&settings(), &tools), Err(PromptError::TooLarge { what: "tools", .. })));
}

#[test]
fn defaults_of_the_deployment_yield_to_the_request() {
    let default_template_kwargs = Map::from_iter([("flag".to_owned(), json!("default"))]);
    let settings = Settings { default_template_kwargs, ..settings() };
    assert_eq!(render_with(&settings, &chat(HI)), Ok(format!("{HI_RENDERED}nulldefault")));
    let request = ChatRequest { template_kwargs: Some(br#"{"flag": "own"}"#), ..chat(HI) };
    assert_eq!(render_with(&settings, &request), Ok(format!("{HI_RENDERED}nullown")));
}

#[test]
fn tools_are_hidden_only_where_the_deployment_says_so() {
    let request = ChatRequest {
        tools: Some(br#"[{"type": "function", "function": {"name": "f"}}]"#),
        tool_choice: Some(br#""none""#),
        ..chat(HI)
    };
    let shown =
        r#"[{"type": "function", "function": {"name": "f", "description": null, "parameters": null}}]"#;
    assert_eq!(render_with(&settings(), &request), Ok(format!("{HI_RENDERED}{shown}-")));
    let hiding = Settings { exclude_tools_when_none: true, ..settings() };
    assert_eq!(render_with(&hiding, &request), Ok(format!("{HI_RENDERED}null-")));
    let auto = ChatRequest { tool_choice: Some(br#""auto""#), ..request };
    assert_eq!(render_with(&hiding, &auto), Ok(format!("{HI_RENDERED}{shown}-")));
}

#[test]
fn template_with_tools_is_asked_for_where_there_are_tools() {
    let settings = settings();
    let compile = |source| {
        ChatTemplate::compile(source, ContentDetection::Messages, Arc::clone(&settings.clock)).unwrap()
    };
    let (plain, with_tools) = (compile("plain"), compile("tools"));
    let choose = |has_tools| Some(if has_tools { &with_tools } else { &plain });
    let request = ChatRequest { tools: Some(br#"[{"function": {"name": "f"}}]"#), ..chat(HI) };
    let text = |request| render(&settings, choose, read(&settings, request).unwrap()).map(|chat| chat.text);
    assert_eq!(text(&request), Ok("tools".into()));
    assert_eq!(text(&chat(HI)), Ok("plain".into()));
    let error = render(&settings, |_| None, read(&settings, &chat(HI)).unwrap()).unwrap_err();
    assert_eq!(error.reason(), "not_renderable");
}

/// Messages and tools that are nearly right: known keys with values of any type, in any order.
fn nearly_right() -> impl Strategy<Value = Json> {
    const KEYS: [&str; 16] = [
        "role",
        "content",
        "tool_calls",
        "function",
        "arguments",
        "name",
        "id",
        "type",
        "text",
        "tool_call_id",
        "reasoning",
        "tools",
        "parameters",
        "strict",
        "description",
        "uuid",
    ];
    const TEXTS: [&str; 12] = [
        "system",
        "user",
        "assistant",
        "tool",
        "developer",
        "text",
        "function",
        "{}",
        "[1",
        "image_url",
        "é\n",
        "",
    ];
    let leaf = prop_oneof![
        Just(Json::Null),
        Just(Json::Bool(true)),
        Just(json!(1.5)),
        prop::sample::select(&TEXTS[..]).prop_map(Json::from),
    ];
    leaf.prop_recursive(5, 48, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec((prop::sample::select(&KEYS[..]), inner), 0..5).prop_map(|fields| {
                Json::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_request_ends_in_a_text_or_a_known_reason(
        messages in prop::collection::vec(nearly_right(), 0..4),
        tools in nearly_right(),
        kwargs in nearly_right(),
        flags in any::<(bool, bool)>(),
        minor in 9u16..34,
    ) {
        let settings = Settings { rules: RenderingRules::of(EngineVersion::new(0, minor)), ..settings() };
        let [messages, tools, kwargs] = [Json::from(messages), tools, kwargs].map(|json| json.to_string());
        let request = ChatRequest {
            tools: Some(tools.as_bytes()),
            template_kwargs: Some(kwargs.as_bytes()),
            documents: Some(kwargs.as_bytes()),
            add_generation_prompt: Some(flags.0),
            continue_final_message: Some(flags.1),
            ..chat(messages.as_bytes())
        };
        for request in [request, chat(messages.as_bytes())] {
            if let Err(error) = render_with(&settings, &request) {
                prop_assert!(PromptError::REASONS.contains(&error.reason()));
            }
        }
    }

    #[test]
    fn any_bytes_end_in_a_text_or_a_known_reason(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let error = render_with(&settings(), &chat(&bytes)).unwrap_err();
        prop_assert_eq!(error.reason(), "bad_prompt");
    }
}
