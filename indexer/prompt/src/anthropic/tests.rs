//! What a deployment decides about conversions. What becomes of ordinary and odd requests is compared with the engine's
//! own code in `tests/recorded.rs`.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::template::SystemClock;
use crate::version::{EngineVersion, RenderingRules};

fn settings() -> Settings {
    Settings {
        rules: RenderingRules::of(EngineVersion::new(0, 32)),
        content_format: None,
        trust_request_template: false,
        default_template_kwargs: Map::from_iter([("flag".into(), 1.into())]),
        exclude_tools_when_none: true,
        special_tokens: Vec::new(),
        clock: Arc::new(SystemClock::local()),
    }
}

const KEPT: Conversion = Conversion { merges_inline_system: false, disabled_effort: "none" };

fn convert(conversion: Conversion, members: &Json) -> Result<ChatInput<'static>, PromptError> {
    let members = members.to_string();
    let request = MessagesRequest { members: members.as_bytes(), has_media: false };
    super::convert(&settings().rules.anthropic, conversion, &request)?.into_chat(&settings(), false)
}

#[test]
fn system_messages_stay_or_join_the_system_prompt_as_the_template_wants() {
    let members = json!({"system": "a", "messages": [
        {"role": "user", "content": "b"}, {"role": "system", "content": "c"},
    ]});
    let messages = |merges_inline_system| {
        convert(Conversion { merges_inline_system, ..KEPT }, &members).unwrap().messages
    };
    let kept = json!([
        {"role": "system", "content": "a"}, {"role": "user", "content": "b"}, {"role": "system", "content": "c"},
    ]);
    assert_eq!(messages(false), kept);
    assert_eq!(
        messages(true),
        json!([{"role": "system", "content": "ac"}, {"role": "user", "content": "b"}])
    );
}

#[test]
fn tools_are_hidden_where_none_may_be_called_and_the_deployment_says_so() {
    let members = |choice: &str| {
        json!({
            "messages": [{"role": "user", "content": "a"}],
            "tools": [{"name": "f", "input_schema": {}}],
            "tool_choice": {"type": choice},
        })
    };
    assert!(convert(KEPT, &members("auto")).unwrap().tools.is_some());
    assert!(convert(KEPT, &members("none")).unwrap().tools.is_none());
}

/// What is looked up among all tools for each of them takes minutes here.
#[test]
fn many_changes_to_many_tools_are_made_in_their_order() {
    const TOOLS: usize = 50_000;
    let tool = |place: usize| json!({"name": format!("f{place}"), "input_schema": {"place": place}});
    let changes = (0..TOOLS).map(|place| match place % 4 {
        0 => json!({"type": "tool_removal", "tool": {"type": "tool_reference", "name": format!("f{place}")}}),
        // Back again, in its old place.
        1 => json!({"type": "tool_addition", "tool": {"type": "tool_reference", "name": format!("f{}", place - 1)}}),
        2 => json!({"type": "tool_removal", "tool": {"type": "tool_reference", "name": format!("f{place}")}}),
        _ => json!({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool(TOOLS + place)}}),
    });
    let members = json!({
        "messages": [{"role": "user", "content": "a"}, {"role": "system", "content": changes.collect::<Vec<_>>()}],
        "tools": (0..TOOLS).chain([7]).map(tool).collect::<Vec<_>>(),
    });
    let tools = convert(KEPT, &members).unwrap().tools.unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    let want = (0..TOOLS).filter(|place| place % 4 != 2);
    let want = want.chain((0..TOOLS).filter(|place| place % 4 == 3).map(|place| TOOLS + place));
    assert_eq!(names, want.map(|place| format!("f{place}")).collect::<Vec<_>>());
}

#[test]
fn effort_without_thinking_is_the_one_that_the_template_knows() {
    let members = json!({"messages": [{"role": "user", "content": "a"}], "thinking": {"type": "disabled"}});
    for disabled_effort in ["none", "low"] {
        let variables = convert(Conversion { disabled_effort, ..KEPT }, &members).unwrap().variables;
        assert_eq!(variables["reasoning_effort"], disabled_effort);
        assert_eq!(variables["enable_thinking"], json!(disabled_effort != "none"));
        assert_eq!(variables["flag"], 1, "the deployment's own variables hold");
    }
}

#[test]
fn call_without_an_id_depends_on_the_engines_clock() {
    let messages =
        json!([{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]}]);
    let error = convert(KEPT, &json!({"messages": messages})).err().unwrap();
    assert_eq!(error.reason(), "unsupported_field", "{error}");
}

#[test]
fn wrong_forms_are_refused_and_name_what_is_wrong() {
    for (members, word) in [
        (json!([]), "members"),
        (json!({}), "messages"),
        (json!({"messages": {}}), "messages"),
        (json!({"messages": [5]}), "message"),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), "roles"),
        (json!({"messages": [], "system": 5}), "system"),
        (json!({"messages": [], "tools": {}}), "tools"),
        (json!({"messages": [], "thinking": {"type": "enabled", "budget_tokens": 1}}), "thinking"),
    ] {
        let error = convert(KEPT, &members).err().unwrap();
        assert_eq!(error.reason(), "bad_prompt", "{members}");
        assert!(error.to_string().contains(word), "{error}");
    }
}
