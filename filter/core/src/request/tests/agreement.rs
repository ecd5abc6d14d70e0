//! Our reading of a body against that of a full parser: members that stand twice, on any level, with escaped names.

use super::*;
use crate::response::ResponseKey;

/// A JSON value as text. Few names, so that many are equal.
fn values() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "null",
        "true",
        "1",
        "77",
        "-1",
        "1.5",
        "1e2",
        "\"a\"",
        "\"\"",
        "\"user\"",
        "\"text\"",
        "\"\\u00e9\\n\"",
        "\"left\"",
        "[]",
        "{}",
        "[1,2]",
        "[[1],[2,3]]",
        "[\"a\",\"b\"]",
        "\" \\\\\\\" \"",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 5, |inner| {
        let name = prop::sample::select(vec![
            "role",
            "content",
            "text",
            "type",
            "\\u0074ype",
            "conten\\u0074",
            "image_url",
            "url",
            "x",
            "",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|list| format!("[ {}]", list.join(" ,"))),
            prop::collection::vec((name, inner), 0..5).prop_map(|members| object(&members)),
        ]
    })
}

fn object(members: &[(&str, String)]) -> String {
    let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\" :{value}")).collect();
    format!("{{{}}}", members.join(","))
}

/// Bodies made of the members that matter, many of them twice, with values of every kind.
fn bodies() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "model",
        "mod\\u0065l",
        "prompt",
        "prompt",
        "messages",
        "messages",
        "mess\\u0061ges",
        "input",
        "input",
        "instructions",
        "system",
        "tools",
        "cache_salt",
        "n",
        "max_tokens",
        "truncation_side",
        "reasoning",
        "previous_response_id",
        "prompt_embeds",
        "kv_transfer_params",
        "x",
    ]);
    prop::collection::vec((name, values()), 0..14).prop_map(|members| object(&members))
}

/// What a prompt in one of the four forms is.
fn four_forms(value: Option<&Value>) -> Option<Prompt<'static>> {
    let ids = |list: &Vec<Value>| -> Option<Vec<u32>> {
        let ids: Option<Vec<u32>> =
            list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect();
        ids.filter(|ids| !ids.is_empty())
    };
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let texts = |texts: Vec<String>| Prompt::Texts(texts.into_iter().map(Cow::Owned).collect());
    match value? {
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) => {
            let all_texts: Option<Vec<String>> = list.iter().map(text).collect();
            let lists: Option<Vec<Vec<u32>>> = list.iter().map(|l| l.as_array().and_then(ids)).collect();
            all_texts
                .map(texts)
                .or(ids(list).map(|ids| Prompt::Tokens(vec![ids])))
                .or(lists.map(Prompt::Tokens))
        }
        value => text(value).map(|text| texts(vec![text])),
    }
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).expect("JSON")
}

/// The members of these names that are given and not null.
fn only(full: &serde_json::Map<String, Value>, names: &[&str]) -> Value {
    let given = full.iter().filter(|(name, value)| names.contains(&name.as_str()) && !value.is_null());
    Value::Object(given.map(|(name, value)| (name.clone(), value.clone())).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn any_object_is_read_as_a_full_parser_reads_it(body in bodies()) {
        let Value::Object(full) = parsed(&body) else { panic!("{body}") };
        let given = |name: &str| full.get(name).filter(|value| !value.is_null());
        for path in KnownPath::ALL {
            let request = extract(path, body.as_bytes()).expect("an object");
            let model = given("model").and_then(Value::as_str).unwrap_or("");
            prop_assert_eq!(request.model.as_ref(), model);
            let salt = given("cache_salt").and_then(Value::as_str).unwrap_or("");
            prop_assert_eq!(request.cache_salt.as_ref(), salt);
            let previous = given("previous_response_id").and_then(Value::as_str);
            let previous = previous.filter(|_| path == KnownPath::Responses);
            prop_assert_eq!(request.previous_response, previous.and_then(|id| ResponseKey::of(id.as_bytes())));
            match request.prompt {
                Prompt::Chat(chat) if !chat.has_media => {
                    let messages = parsed(&chat.messages);
                    let input = given("input").filter(|_| path == KnownPath::Embeddings);
                    prop_assert_eq!(Some(&messages), given("messages").or(input));
                    let tools = given("tools").filter(|_| path == KnownPath::Chat).cloned();
                    prop_assert_eq!(chat.tools.map(parsed), tools);
                }
                Prompt::Responses(members) if !members.has_media => {
                    let names = ["input", "instructions", "tools", "reasoning", "prompt", "kv_transfer_params"];
                    prop_assert_eq!(parsed(&members.json), only(&full, &names));
                }
                Prompt::Messages(members) if !members.has_media => {
                    prop_assert_eq!(parsed(&members.json), only(&full, &["messages", "system", "tools", "kv_transfer_params"]));
                }
                Prompt::Chat(_) | Prompt::Responses(_) | Prompt::Messages(_) => {
                    prop_assert!(body.contains("image_url"));
                }
                prompt @ (Prompt::Texts(_) | Prompt::Tokens(_)) => {
                    let name = if path == KnownPath::Completions { "prompt" } else { "input" };
                    prop_assert_eq!(Some(prompt), four_forms(given(name)));
                }
                Prompt::Unscored(Reason::UnsupportedField | Reason::PromptEmbeds | Reason::NoPrefill) => {}
                Prompt::Unscored(reason) => {
                    let none = match path {
                        KnownPath::Completions => four_forms(given("prompt")).is_none(),
                        KnownPath::Embeddings => {
                            four_forms(given("input")).is_none() || given("messages").is_some()
                        }
                        KnownPath::Responses => {
                            given("input").is_none_or(|input| {
                                !input.is_string() && input.as_array().is_none_or(|items| items.is_empty())
                            })
                        }
                        _ => {
                            let messages = given("messages").and_then(Value::as_array);
                            messages.is_none_or(|list| list.is_empty())
                        }
                    };
                    prop_assert!(none, "{}: {}", reason, body);
                }
            }
        }
    }
}
