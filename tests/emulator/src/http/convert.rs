//! Requests of other APIs as the chats that the engine makes of them. The ordinary shapes only: see `README.md`.

use serde_json::{Map, Value, json};

/// Messages for `input` of `/v1/responses`: a text, or items.
pub(super) fn input_items(input: &Value) -> Vec<Value> {
    match input {
        Value::String(text) => vec![json!({"role": "user", "content": text})],
        Value::Array(items) => items.iter().fold(Vec::new(), |mut messages, item| {
            add_item(&mut messages, item);
            messages
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

/// A call belongs to the message of the assistant before it.
fn add_item(messages: &mut Vec<Value>, item: &Value) {
    match item["type"].as_str() {
        Some("function_call") => {
            let call = json!({
                "id": item["call_id"], "type": "function",
                "function": {"name": item["name"], "arguments": item["arguments"]},
            });
            let assistant = messages.last_mut().filter(|last| last["role"] == "assistant");
            match assistant.and_then(Value::as_object_mut) {
                Some(fields) => match fields.get_mut("tool_calls").and_then(Value::as_array_mut) {
                    Some(calls) => calls.push(call),
                    None => drop(fields.insert("tool_calls".to_owned(), json!([call]))),
                },
                None => messages.push(json!({"role": "assistant", "tool_calls": [call]})),
            }
        }
        Some("function_call_output") => messages.push(json!({
            "role": "tool", "tool_call_id": item["call_id"], "content": item["output"],
        })),
        Some("reasoning") => {}
        _ => messages.push(json!({"role": item["role"], "content": item["content"]})),
    }
}

/// Tools of `/v1/responses`, which have no `function` inside.
pub(super) fn response_tools(tools: &Value) -> Value {
    functions(tools, |tool| {
        json!({
            "name": tool["name"], "description": tool["description"], "parameters": tool["parameters"],
        })
    })
}

/// Tools of `/v1/messages`.
pub(super) fn message_tools(tools: &Value) -> Value {
    functions(tools, |tool| {
        json!({
            "name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"],
        })
    })
}

fn functions(tools: &Value, function: impl Fn(&Value) -> Value) -> Value {
    let list = tools.as_array().into_iter().flatten();
    list.map(|tool| json!({"type": "function", "function": function(tool)})).collect()
}

/// Messages for `system` and `messages` of `/v1/messages`.
pub(super) fn blocks(system: &Value, messages: &[Value]) -> Vec<Value> {
    let mut chat = Vec::new();
    match system {
        Value::String(text) => chat.push(json!({"role": "system", "content": text})),
        Value::Array(blocks) => {
            let text: String = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
            chat.push(json!({"role": "system", "content": text}));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
    }
    for message in messages {
        add_message(&mut chat, message);
    }
    chat
}

/// The results of tools come before the message that carried them.
fn add_message(chat: &mut Vec<Value>, message: &Value) {
    let Some(blocks) = message["content"].as_array() else {
        chat.push(json!({"role": message["role"], "content": message["content"]}));
        return;
    };
    let (mut parts, mut calls) = (Vec::new(), Vec::new());
    for block in blocks {
        match block["type"].as_str() {
            Some("tool_use") => calls.push(json!({
                "id": block["id"], "type": "function",
                "function": {"name": block["name"], "arguments": block["input"].to_string()},
            })),
            Some("tool_result") => chat.push(json!({
                "role": "tool", "tool_call_id": block["tool_use_id"], "content": block["content"],
            })),
            _ => parts.push(json!({"type": "text", "text": block["text"]})),
        }
    }
    let mut fields = Map::from_iter([("role".to_owned(), message["role"].clone())]);
    match parts.as_slice() {
        [] => {}
        [one] => drop(fields.insert("content".to_owned(), one["text"].clone())),
        _ => drop(fields.insert("content".to_owned(), Value::Array(parts.clone()))),
    }
    if !calls.is_empty() {
        fields.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    if fields.len() > 1 {
        chat.push(Value::Object(fields));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_messages_and_calls_join_their_assistant() {
        assert_eq!(input_items(&json!("hi")), [json!({"role": "user", "content": "hi"})]);
        let items = json!([
            {"role": "user", "content": "weather?"},
            {"type": "message", "role": "assistant", "content": "let me see"},
            {"type": "function_call", "call_id": "1", "name": "w", "arguments": "{}"},
            {"type": "reasoning", "summary": []},
            {"type": "function_call_output", "call_id": "1", "output": "rain"},
        ]);
        let call = json!({"id": "1", "type": "function", "function": {"name": "w", "arguments": "{}"}});
        let expected = [
            json!({"role": "user", "content": "weather?"}),
            json!({"role": "assistant", "content": "let me see", "tool_calls": [call]}),
            json!({"role": "tool", "tool_call_id": "1", "content": "rain"}),
        ];
        assert_eq!(input_items(&items), expected);
    }

    #[test]
    fn blocks_become_messages_and_results_come_first() {
        let system = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let messages = [
            json!({"role": "user", "content": "weather?"}),
            json!({"role": "assistant", "content": [
                {"type": "text", "text": "let me see"},
                {"type": "tool_use", "id": "1", "name": "w", "input": {"city": "Kyiv"}},
            ]}),
            json!({"role": "user", "content": [
                {"type": "text", "text": "and?"},
                {"type": "tool_result", "tool_use_id": "1", "content": "rain"},
            ]}),
        ];
        let function = json!({"name": "w", "arguments": "{\"city\":\"Kyiv\"}"});
        let call = json!({"id": "1", "type": "function", "function": function});
        let expected = [
            json!({"role": "system", "content": "ab"}),
            json!({"role": "user", "content": "weather?"}),
            json!({"role": "assistant", "content": "let me see", "tool_calls": [call]}),
            json!({"role": "tool", "tool_call_id": "1", "content": "rain"}),
            json!({"role": "user", "content": "and?"}),
        ];
        assert_eq!(blocks(&system, &messages), expected);
    }
}
