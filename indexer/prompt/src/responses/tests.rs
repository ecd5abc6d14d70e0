//! What a deployment decides about conversions. What becomes of ordinary and odd requests is compared with the engine's
//! own code in `tests/recorded.rs`.

use std::sync::Arc;

use serde_json::{Map, json};

use super::*;
use crate::template::SystemClock;
use crate::version::{EngineVersion, RenderingRules};

fn convert(minor: u16, members: &Json) -> Result<Converted, PromptError> {
    let settings = Settings {
        rules: RenderingRules::of(EngineVersion::new(0, minor)),
        content_format: None,
        trust_request_template: false,
        default_template_kwargs: Map::from_iter([("flag".into(), 1.into())]),
        exclude_tools_when_none: true,
        special_tokens: Vec::new(),
        clock: Arc::new(SystemClock::local()),
    };
    let members = members.to_string();
    read(&settings, &ResponsesRequest { members: members.as_bytes(), ..ResponsesRequest::default() })
}

#[test]
fn default_template_arguments_hold_in_releases_that_read_any() {
    let flag = |minor| convert(minor, &json!({"input": "a"})).unwrap().chat.variables.contains_key("flag");
    assert_eq!([flag(21), flag(22)], [false, true]);
}

#[test]
fn tools_are_hidden_where_none_may_be_called_and_the_deployment_says_so() {
    let members = |choice: &str| json!({"input": "a", "tools": [{"type": "function", "name": "f"}], "tool_choice": choice});
    assert!(convert(32, &members("auto")).unwrap().chat.tools.is_some());
    assert!(convert(32, &members("none")).unwrap().chat.tools.is_none());
}

#[test]
fn tools_that_another_library_prints_are_not_guessed() {
    let error =
        convert(26, &json!({"input": "a", "tools": [{"type": "function", "name": "f"}]})).err().unwrap();
    assert_eq!(error.reason(), "unsupported_field", "{error}");
}

/// A namespace's name goes before the name of each of its tools.
#[test]
fn names_of_tools_are_not_made_longer_than_a_prompt() {
    let members = |bytes: usize, choice: &str| {
        let tools = json!(vec![json!({"type": "function", "name": "f"}); 20]);
        json!({
            "input": "a", "tool_choice": {"type": "function", "name": choice},
            "tools": [{"type": "namespace", "name": "n".repeat(bytes), "tools": tools}],
        })
    };
    let tools = convert(32, &members(2, "nn__f")).unwrap().chat.tools.unwrap();
    assert_eq!((tools.len(), &tools[19]["function"]["name"]), (20, &json!("nn__f")));
    assert!(convert(32, &members(2, "f")).is_ok());
    for other in ["nnf", "nn__", "n__f", "nn__ff"] {
        assert_eq!(convert(32, &members(2, other)).err().unwrap().reason(), "bad_prompt", "{other}");
    }
    let error = convert(32, &members(1 << 20, "f")).err().unwrap();
    assert!(matches!(error, PromptError::TooLarge { what: "tools", .. }), "{error}");
}

#[test]
fn prompts_are_truncated_unless_truncation_is_absent_or_disabled() {
    let is_truncated = |truncation: Json| {
        convert(32, &json!({"input": "a", "truncation": truncation})).unwrap().is_truncated
    };
    assert!(!convert(32, &json!({"input": "a"})).unwrap().is_truncated);
    assert_eq!(
        ["disabled".into(), "auto".into(), Json::Null].map(is_truncated),
        [false, true, true],
        "null is not the default"
    );
}

#[test]
fn open_last_message_is_continued() {
    let input = |status: &str| {
        json!({"input": [{"role": "user", "content": "a"}, {
            "type": "message", "role": "assistant", "id": "m", "status": status,
            "content": [{"type": "output_text", "text": "b", "annotations": []}],
        }]})
    };
    for (status, is_open) in [("completed", false), ("in_progress", true), ("incomplete", true)] {
        let chat = convert(32, &input(status)).unwrap().chat;
        assert_eq!((chat.continue_final_message, chat.add_generation_prompt), (is_open, !is_open));
    }
}

#[test]
fn wrong_forms_are_refused_and_name_what_is_wrong() {
    for (members, word) in [
        (json!([]), "members"),
        (json!({}), "input"),
        (json!({"input": 5}), "input"),
        (json!({"input": [5]}), "item"),
        (json!({"input": "a", "prompt": {"id": "p"}}), "prompt"),
        (json!({"input": "a", "instructions": 5}), "instructions"),
        (json!({"input": "a", "truncation": "odd"}), "truncation"),
        (json!({"input": "a", "tool_choice": "odd"}), "tool_choice"),
        (json!({"input": [{"type": "function_call", "call_id": "c"}]}), "name"),
    ] {
        let error = convert(32, &members).err().unwrap();
        assert_eq!(error.reason(), "bad_prompt", "{members}");
        assert!(error.to_string().contains(word), "{error}");
    }
}
