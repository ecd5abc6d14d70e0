//! Messages and tools as the engine hands them to a chat template.

use serde_json::{Map, Value, json};

/// Text parts joined, no content as empty text, arguments of tool calls as objects; everything else as it came.
pub(super) fn messages(list: &[Value]) -> Value {
    Value::Array(list.iter().map(message).collect())
}

/// Tools with their fields in the engine's order, absent ones as null and unknown ones left out.
pub(super) fn tools(tools: &Value) -> Value {
    let Some(list) = tools.as_array() else { return tools.clone() };
    let one = |tool: &Value| {
        let function = &tool["function"];
        let mut fields = Map::new();
        for name in ["name", "description", "parameters"] {
            fields.insert(name.to_owned(), function[name].clone());
        }
        if let Some(strict) = function.get("strict") {
            fields.insert("strict".to_owned(), strict.clone());
        }
        json!({"type": "function", "function": fields})
    };
    Value::Array(list.iter().map(one).collect())
}

fn message(message: &Value) -> Value {
    let mut message = message.clone();
    let Some(fields) = message.as_object_mut() else { return message };
    let content = fields.entry("content").or_insert(Value::Null);
    match content {
        Value::Array(parts) => *content = Value::String(joined(parts)),
        Value::Null => *content = Value::String(String::new()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {}
    }
    for call in fields.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(arguments) = call.pointer_mut("/function/arguments")
            && let Some(text) = arguments.as_str()
        {
            // What is no JSON object counts as no arguments.
            let parsed = serde_json::from_str(text).ok().filter(Value::is_object);
            *arguments = parsed.unwrap_or_else(|| json!({}));
        }
    }
    message
}

fn joined(parts: &[Value]) -> String {
    let texts = parts.iter().filter_map(|part| part.as_str().or_else(|| part.get("text")?.as_str()));
    texts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_become_text() {
        let cases = [
            (json!({"content": "a"}), json!("a")),
            (json!({"content": null}), json!("")),
            (json!({"role": "assistant"}), json!("")),
            (
                json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
                json!("a\nb"),
            ),
        ];
        for (given, content) in cases {
            assert_eq!(messages(std::slice::from_ref(&given))[0]["content"], content, "{given}");
        }
    }

    #[test]
    fn arguments_become_objects() {
        for (text, expected) in [("{\"b\": 1}", json!({"b": 1})), ("", json!({})), ("nonsense", json!({}))] {
            let given = json!({"tool_calls": [{"function": {"name": "f", "arguments": text}}]});
            assert_eq!(messages(&[given])[0]["tool_calls"][0]["function"]["arguments"], expected);
        }
    }

    #[test]
    fn tools_have_their_fields_in_order() {
        let given =
            json!([{"extra": 1, "function": {"strict": true, "parameters": {}, "x": 1, "name": "f"}}]);
        let expected = r#"[{"type":"function","function":{"name":"f","description":null,"parameters":{},"strict":true}}]"#;
        assert_eq!(tools(&given).to_string(), expected);
    }
}
