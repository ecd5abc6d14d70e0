//! Request bodies, as the filter reads them. Input: a byte that chooses the path, then the body.
//!
//! Reading is a function of path and body, what it borrows lies inside the body, and whatever it reads is what serde_json
//! reads there too; what it refuses as broken JSON, serde_json refuses.

use std::borrow::Cow;

use serde_json::{Map, Value};
use warmpath_core::outcome::Reason;
use warmpath_core::path::KnownPath;
use warmpath_core::request::{ChatPrompt, Prompt, PromptRequest, extract};

/// Keys by which serde_json marks its own numbers and raw values. A body that has them is read otherwise by it.
const PRIVATE_KEYS: &[u8] = b"$serde_json::private";

/// Checks one body.
pub fn check(input: &[u8]) {
    let Some((selector, body)) = input.split_first() else { return };
    let paths = KnownPath::ALL;
    let Some(path) = paths.get(usize::from(*selector) % paths.len()) else { return };
    let read = extract(*path, body);
    let elsewhere = body.to_vec();
    assert_eq!(read, extract(*path, &elsewhere));
    if body.windows(PRIVATE_KEYS.len()).any(|window| window == PRIVATE_KEYS) {
        return;
    }
    let theirs = serde_json::from_slice::<Value>(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body));
    match (&read, theirs) {
        (Ok(request), Ok(Value::Object(theirs))) => {
            check_borrows(request, body);
            agrees(request, &theirs);
        }
        (Ok(_), Ok(other)) => panic_on("took what is no object", &other),
        // Half of a surrogate pair is in the grammar, but no text; and serde_json counts levels otherwise at the limit.
        (Ok(request), Err(error)) => assert!(may_be_stricter(&error), "{error}: {request:?}"),
        (Err(Reason::FieldTooLong), Ok(_)) | (Err(_), Err(_)) => {}
        (Err(Reason::NotJson), Ok(other)) => assert!(!other.is_object(), "{other}"),
        (Err(reason), Ok(other)) => panic_on(reason.name(), &other),
    }
}

/// What serde_json refuses though it is in the grammar of JSON.
fn may_be_stricter(error: &serde_json::Error) -> bool {
    let words = error.to_string();
    ["surrogate", "unexpected end of hex escape", "recursion limit"].iter().any(|part| words.contains(part))
}

#[expect(clippy::panic, reason = "a check fails by panicking")]
fn panic_on(what: &str, theirs: &Value) -> ! {
    panic!("{what}, but serde_json reads {theirs}")
}

/// Whatever is borrowed is a part of the body.
fn check_borrows(request: &PromptRequest<'_>, body: &[u8]) {
    let inside = |text: &str| {
        let (text, body) = (text.as_bytes().as_ptr_range(), body.as_ptr_range());
        assert!(text.is_empty() || (body.start <= text.start && text.end <= body.end), "outside of the body");
    };
    let borrowed = |text: &Cow<'_, str>| {
        if let Cow::Borrowed(text) = text {
            // An absent text is a constant of the program.
            assert!(text.is_empty() || body.as_ptr_range().contains(&text.as_ptr()), "outside of the body");
        }
    };
    borrowed(&request.model);
    borrowed(&request.cache_salt);
    match &request.prompt {
        Prompt::Texts(texts) => texts.iter().for_each(borrowed),
        Prompt::Chat(chat) => {
            borrowed(&chat.messages);
            chat.chat_template.iter().for_each(borrowed);
            chat.reasoning_effort.iter().for_each(borrowed);
            let slices = [chat.tools, chat.documents, chat.template_kwargs, chat.tool_choice];
            slices.into_iter().flatten().for_each(inside);
        }
        Prompt::Tokens(_) | Prompt::Responses(_) | Prompt::Messages(_) | Prompt::Unscored(_) => {}
    }
}

/// Every value is what serde_json has for it.
fn agrees(request: &PromptRequest<'_>, theirs: &Map<String, Value>) {
    let text = |name: &str| theirs.get(name).and_then(Value::as_str).unwrap_or_default();
    assert_eq!(request.model, text("model"));
    assert_eq!(request.cache_salt, text("cache_salt"));
    let number = |name: &str| theirs.get(name).and_then(Value::as_i64);
    let bounds = ["max_completion_tokens", "max_tokens", "max_output_tokens"].into_iter().find_map(number);
    let output = bounds.map_or(0, |bound| u32::try_from(bound.max(0)).unwrap_or(u32::MAX));
    assert_eq!(request.max_output_tokens, output);
    let given = |name: &str| theirs.get(name).filter(|value| !value.is_null());
    let prompt = match request.path {
        KnownPath::Embeddings => given("input"),
        _ => given("prompt"),
    };
    match &request.prompt {
        Prompt::Texts(texts) => assert_eq!(Some(texts), prompt.map(texts_of).as_ref()),
        Prompt::Tokens(ids) => assert_eq!(Some(ids), prompt.and_then(ids_of).as_ref()),
        Prompt::Chat(chat) => {
            let messages = given("messages").or(prompt);
            agrees_on_chat(chat, messages, given);
        }
        Prompt::Responses(members) | Prompt::Messages(members) => {
            let ours = parsed(&members.json);
            for (name, value) in ours.as_object().into_iter().flatten() {
                assert!(members.has_media || Some(value) == given(name), "{name}: {value}");
            }
        }
        Prompt::Unscored(_) => {}
    }
}

fn agrees_on_chat<'v>(
    chat: &ChatPrompt<'_>,
    messages: Option<&'v Value>,
    given: impl Fn(&str) -> Option<&'v Value>,
) {
    let ours = parsed(&chat.messages);
    assert!(chat.has_media || Some(&ours) == messages, "messages: {ours}");
    for (name, slice) in [
        ("tools", chat.tools),
        ("documents", chat.documents),
        ("chat_template_kwargs", chat.template_kwargs),
        ("tool_choice", chat.tool_choice),
    ] {
        if let Some(slice) = slice {
            assert_eq!(Some(&parsed(slice)), given(name), "{name}");
        }
    }
    assert_eq!(chat.chat_template.as_deref(), given("chat_template").and_then(Value::as_str));
    let effort = chat.reasoning_effort.as_deref();
    assert!(effort.is_none() || effort == given("reasoning_effort").and_then(Value::as_str));
    let flag = |name| given(name).and_then(Value::as_bool);
    assert_eq!(chat.continue_final_message, flag("continue_final_message"));
    if let Some(ids) = &chat.prompt_token_ids {
        let theirs = given("kv_transfer_params").and_then(|params| params.get("prompt_token_ids"));
        assert_eq!(Some(vec![ids.clone()]), theirs.and_then(ids_of));
    }
}

/// What we cut out of a body is JSON by itself.
fn parsed(json: &str) -> Value {
    let parsed = serde_json::from_str(json);
    assert!(parsed.is_ok(), "no JSON: {json}");
    parsed.unwrap_or_default()
}

fn texts_of(prompt: &Value) -> Vec<Cow<'_, str>> {
    let texts = match prompt {
        Value::Array(texts) => texts.as_slice(),
        text => std::slice::from_ref(text),
    };
    texts.iter().filter_map(Value::as_str).map(Cow::Borrowed).collect()
}

/// Lists of ids, one or several; none where something else is among them.
fn ids_of(prompt: &Value) -> Option<Vec<Vec<u32>>> {
    let ids = |list: &[Value]| -> Option<Vec<u32>> {
        list.iter().map(|id| u32::try_from(id.as_i64()?).ok()).collect()
    };
    let outer = prompt.as_array()?;
    match outer.first()? {
        Value::Array(_) => outer.iter().map(|inner| ids(inner.as_array()?)).collect(),
        _ => Some(vec![ids(outer)?]),
    }
}
