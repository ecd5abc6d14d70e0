//! Bodies as clients send them, and as nobody should.

mod agreement;
mod malformed;
mod shapes;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::limits::{HEAD_BYTES, JSON_DEPTH_MAX, PROMPTS_MAX};

fn completion(body: &str) -> PromptRequest<'_> {
    extract(KnownPath::Completions, body.as_bytes()).expect("readable")
}

fn chat(body: &str) -> PromptRequest<'_> {
    extract(KnownPath::Chat, body.as_bytes()).expect("readable")
}

fn texts(texts: &[&'static str]) -> Prompt<'static> {
    Prompt::Texts(texts.iter().map(|t| Cow::Borrowed(*t)).collect())
}

fn conversation(request: PromptRequest<'_>) -> ChatPrompt<'_> {
    match request.prompt {
        Prompt::Chat(chat) => *chat,
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_four_shapes_of_a_completion_prompt_are_read() {
    let prompt = |json: &str| completion(&format!(r#"{{"prompt":{json}}}"#)).prompt.into_static();
    assert_eq!(prompt(r#""a\nb""#), texts(&["a\nb"]));
    assert_eq!(prompt(r#"[ "a" , "b" ]"#), texts(&["a", "b"]));
    assert_eq!(prompt("[1, 2,3]"), Prompt::Tokens(vec![vec![1, 2, 3]]));
    assert_eq!(prompt("[[1],[2,4294967295]]"), Prompt::Tokens(vec![vec![1], vec![2, u32::MAX]]));
}

#[test]
fn a_prompt_that_engines_refuse_is_unscored_for_a_reason() {
    for (json, reason) in [
        ("null", Reason::NoPrompt),
        (r#""""#, Reason::NoPrompt),
        ("[]", Reason::NoPrompt),
        ("[[]]", Reason::NoPrompt),
        ("[[1],[]]", Reason::NoPrompt),
        (r#"["a",""]"#, Reason::NoPrompt),
        ("7", Reason::BadPrompt),
        ("{}", Reason::BadPrompt),
        ("[null]", Reason::BadPrompt),
        (r#"["a",1]"#, Reason::BadPrompt),
        (r#"[1,"a"]"#, Reason::BadPrompt),
        ("[1,[2]]", Reason::BadPrompt),
        ("[[[1]]]", Reason::BadPrompt),
        ("[-1]", Reason::TokenOutOfRange),
        ("[1.5]", Reason::TokenOutOfRange),
        ("[1e3]", Reason::TokenOutOfRange),
        ("[4294967296]", Reason::TokenOutOfRange),
        ("[[1],[99999999999999999999]]", Reason::TokenOutOfRange),
        (r#""\ud83d""#, Reason::LoneSurrogate),
        (r#"["ok","\ude00"]"#, Reason::LoneSurrogate),
    ] {
        let body = format!(r#"{{"prompt":{json}}}"#);
        assert_eq!(completion(&body).prompt, Prompt::Unscored(reason), "{json}");
    }
    let many = json!({ "prompt": vec!["a"; PROMPTS_MAX + 1] }).to_string();
    assert_eq!(completion(&many).prompt, Prompt::Unscored(Reason::TooManyPrompts));
    let embeds = r#"{"prompt":"a","prompt_embeds":"AAAA"}"#;
    assert_eq!(completion(embeds).prompt, Prompt::Unscored(Reason::PromptEmbeds));
    assert_eq!(completion(r#"{"prompt":"a","prompt_embeds":null}"#).prompt, texts(&["a"]));
}

#[test]
fn members_around_the_prompt_are_read() {
    let request = completion(
        r#"{"model":"qwen\u0033","prompt":"a","cache_salt":"tenant","max_tokens":64,"n":3,"stream":true,
            "add_special_tokens":false,"truncate_prompt_tokens":-1,"truncation_side":"right","stream_options":"x",
            "previous_response_id":"r","unknown":{"model":"b"}}"#,
    );
    assert_eq!((request.model.as_ref(), request.cache_salt.as_ref()), ("qwen3", "tenant"));
    assert_eq!((request.max_output_tokens, request.sequences_per_prompt), (64, 3));
    assert_eq!((request.add_special_tokens, request.truncate_prompt_tokens), (Some(false), Some(-1)));
    assert_eq!((request.truncation_side, request.previous_response), (Some(Side::Right), None));
    assert_eq!(request.prompt, texts(&["a"]));
}

#[test]
fn numbers_that_make_no_sense_do_not_matter() {
    let request = completion(r#"{"prompt":"a","n":-4,"max_tokens":-1,"max_completion_tokens":1e99}"#);
    assert_eq!((request.sequences_per_prompt, request.max_output_tokens), (1, 0));
    let request =
        completion(r#"{"prompt":"a","n":100000,"max_completion_tokens":99999999999,"max_tokens":1}"#);
    assert_eq!((request.sequences_per_prompt, request.max_output_tokens), (SEQUENCES_MAX, u32::MAX));
    let request = completion(r#"{"prompt":"a","n":"2","max_tokens":{},"stream":"yes","model":null}"#);
    assert_eq!((request.sequences_per_prompt, request.max_output_tokens), (1, 0));
    assert_eq!(request.prompt, texts(&["a"]));
}

#[test]
fn of_equal_keys_the_last_wins_even_where_it_is_escaped() {
    let request = completion(
        r#"{"model":"a","prompt":"x","mod\u0065l":"b","cache_salt":"s","prompt":[1],"cache_salt":"t"}"#,
    );
    assert_eq!((request.model.as_ref(), request.cache_salt.as_ref()), ("b", "t"));
    assert_eq!(request.prompt, Prompt::Tokens(vec![vec![1]]));
    assert_eq!(completion(r#"{"prompt":"x","prompt":null}"#).prompt, Prompt::Unscored(Reason::NoPrompt));
    let request = chat(r#"{"messages":[{"role":"user","content":"a"}],"messages":[{"content":"b"}]}"#);
    assert_eq!(conversation(request).messages, r#"[{"content":"b"}]"#);
}

#[test]
fn a_member_that_changes_the_prompt_must_be_understood() {
    for member in [
        r#""add_special_tokens":"false""#,
        r#""add_special_tokens":1"#,
        r#""truncate_prompt_tokens":-2"#,
        r#""truncate_prompt_tokens":1.5"#,
        r#""truncate_prompt_tokens":"5""#,
        r#""truncation_side":"middle""#,
        r#""truncation_side":1"#,
        r#""model":7"#,
        r#""cache_salt":["s"]"#,
        r#""model":"\ud800""#,
    ] {
        let body = format!(r#"{{"prompt":"a",{member}}}"#);
        assert_eq!(completion(&body).prompt, Prompt::Unscored(Reason::UnsupportedField), "{member}");
    }
    for member in [
        r#""chat_template_kwargs":[]"#,
        r#""chat_template":7"#,
        r#""add_generation_prompt":"no""#,
        r#""continue_final_message":0"#,
        r#""reasoning_effort":3"#,
    ] {
        let body = format!(r#"{{"messages":[{{}}],{member}}}"#);
        assert_eq!(chat(&body).prompt, Prompt::Unscored(Reason::UnsupportedField), "{member}");
    }
}

#[test]
fn a_conversation_is_passed_on_as_it_was_written() {
    let body = r#"{"messages": [ {"role":"user","content":"ü \u00fc", "x":1.0} ,{"role":"assistant","content":null} ],
        "tools":[ {"z":1e2,"a":2} ],"documents":null,"chat_template_kwargs":{"enable_thinking" :false},
        "tool_choice":"auto","add_generation_prompt":false,"reasoning_effort":"low","chat_template":"{{ \n }}"}"#;
    let chat = conversation(chat(body));
    assert_eq!(
        chat.messages,
        r#"[ {"role":"user","content":"ü \u00fc", "x":1.0} ,{"role":"assistant","content":null} ]"#
    );
    assert_eq!((chat.tools, chat.documents), (Some(r#"[ {"z":1e2,"a":2} ]"#), None));
    assert_eq!(chat.template_kwargs, Some(r#"{"enable_thinking" :false}"#));
    assert_eq!((chat.tool_choice, chat.chat_template.as_deref()), (Some("\"auto\""), Some("{{ \n }}")));
    assert_eq!((chat.add_generation_prompt, chat.continue_final_message), (Some(false), None));
    assert_eq!((chat.reasoning_effort.as_deref(), chat.has_media), (Some("low"), false));
}

#[test]
fn strange_conversations_are_read_as_far_as_they_make_sense() {
    for messages in [
        r#"[{"role":"assistant","content":null,"tool_calls":[{"function":{"arguments":null}}]}]"#,
        r#"[{"role":"user","content":[null]}]"#,
        r#"[{"role":"assistant","tool_calls":[null],"name":7}]"#,
        r#"[null,3,"x",[[]]]"#,
        r#"[{"content":[{"type":"text"},[],"a"]}]"#,
    ] {
        let body = format!(r#"{{"messages":{messages}}}"#);
        let read = conversation(chat(&body)).messages.into_owned();
        assert_eq!(read, messages);
    }
    for (body, reason) in [
        ("{}", Reason::NoPrompt),
        (r#"{"prompt":"a"}"#, Reason::NoPrompt),
        (r#"{"messages":[]}"#, Reason::NoPrompt),
        (r#"{"messages":null}"#, Reason::NoPrompt),
        (r#"{"messages":"hi"}"#, Reason::BadPrompt),
        (r#"{"messages":{"role":"user"}}"#, Reason::BadPrompt),
        (r#"{"messages":[{"content":"\ud83d"}]}"#, Reason::LoneSurrogate),
        (r#"{"messages":[{}],"tools":["\ud83d"]}"#, Reason::LoneSurrogate),
        (r#"{"messages":[{}],"chat_template":"\ud83d"}"#, Reason::LoneSurrogate),
    ] {
        assert_eq!(chat(body).prompt, Prompt::Unscored(reason), "{body}");
    }
}

#[test]
fn media_are_told_and_replaced() {
    let picture = "A".repeat(100_000);
    let body = json!({ "messages": [{ "role": "user", "content": [
        { "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{picture}") } },
        { "type": "text", "text": "what is it?" },
    ] }] });
    let body = body.to_string();
    let chat = conversation(chat(&body));
    assert!(chat.has_media);
    assert!(chat.messages.len() < 300, "{}", chat.messages.len());
    let read: Value = serde_json::from_str(&chat.messages).expect("JSON");
    let url = read.pointer("/0/content/0/image_url/url").and_then(Value::as_str).expect("a text");
    assert!(url.starts_with("warmpath-media:") && url.len() == 47, "{url}");
}

#[test]
fn token_ids_in_a_chat_are_sent_with_its_messages() {
    let ids = r#""kv_transfer_params":{"x":1,"prompt_token_ids":[7,8]}"#;
    let words = r#"[{"content":"a"}]"#;
    let read = |messages: &str, members: &str| {
        let body = format!(r#"{{"messages":{messages},{members}}}"#);
        conversation(chat(&body)).prompt_token_ids
    };
    assert_eq!(read(words, ids), Some(vec![7, 8]));
    let typed = r#"[{"content":[{"type":"text","text":"a"},{"type":"input_text","text":"b"}]}]"#;
    assert_eq!(read(typed, ids), Some(vec![7, 8]));
    assert_eq!(
        read(r#"[{"content":[{"type":"image_url","image_url":{"url":"x"}}]}]"#, ids),
        Some(vec![7, 8])
    );
    // Some engines that know the ids render these messages all the same, others do not.
    let invented = format!(r#"{{"messages":[{{"content":[{{"type":"invented"}}]}}],{ids}}}"#);
    for body in [format!(r#"{{"messages":{words},{ids},"echo":true}}"#), invented] {
        assert_eq!(chat(&body).prompt, Prompt::Unscored(Reason::UnsupportedField), "{body}");
    }
    // Engines that know the ids refuse these, others never look at them.
    for params in [
        "null",
        "{}",
        "[1]",
        r#"{"prompt_token_ids":null}"#,
        r#"{"prompt_token_ids":[]}"#,
        r#"{"prompt_token_ids":[-7]}"#,
        r#"{"prompt_token_ids":[1.5]}"#,
        r#"{"prompt_token_ids":"1"}"#,
        r#"{"prompt_token_ids":[1],"prompt_token_ids":null}"#,
    ] {
        assert_eq!(read(words, &format!(r#""kv_transfer_params":{params}"#)), None, "{params}");
    }
}

#[test]
fn a_body_that_is_no_object_is_passed() {
    let deep = format!(r#"{{"x":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
    for (body, reason) in [
        (b"" as &[u8], Reason::EmptyBody),
        (b" \n\t", Reason::EmptyBody),
        (b"\xef\xbb\xbf", Reason::EmptyBody),
        (b"prompt=a", Reason::NotJson),
        (b"[1]", Reason::NotJson),
        (b"\xff\xfe{\0", Reason::NotJson),
        (b"{", Reason::Unreadable),
        (b"{\"prompt\":\"a\"}x", Reason::Unreadable),
        (b"{\"prompt\":\"\xff\"}", Reason::Unreadable),
        (b"{\"prompt\":NaN}", Reason::Unreadable),
        (deep.as_bytes(), Reason::TooDeep),
    ] {
        assert_eq!(extract(KnownPath::Completions, body), Err(reason), "{}", String::from_utf8_lossy(body));
    }
    for member in ["model", "cache_salt"] {
        let body = json!({ "prompt": "a", member: "m".repeat(1025) }).to_string();
        assert_eq!(extract(KnownPath::Chat, body.as_bytes()), Err(Reason::FieldTooLong));
    }
    let marked = b"\xef\xbb\xbf {\"prompt\":\"a\"}";
    assert_eq!(extract(KnownPath::Completions, marked).expect("a BOM is skipped").prompt, texts(&["a"]));
    let nested = format!(r#"{{"prompt":"a","x":{}1{}}}"#, "[".repeat(100), "]".repeat(100));
    assert!(
        nested.len() > JSON_DEPTH_MAX as usize && extract(KnownPath::Completions, nested.as_bytes()).is_ok()
    );
}

#[test]
fn requests_with_the_same_beginning_have_the_same_affinity() {
    let head = "h".repeat(HEAD_BYTES);
    let of = |body: Value| extract(KnownPath::Completions, body.to_string().as_bytes()).map(|r| r.affinity);
    let base = of(json!({ "model": "m", "prompt": format!("{head}a") }));
    assert_eq!(base, of(json!({ "prompt": format!("{head}b"), "model": "m", "seed": 3 })));
    for other in [
        json!({ "model": "m", "prompt": format!("x{head}") }),
        json!({ "model": "n", "prompt": format!("{head}a") }),
        json!({ "model": "m", "prompt": format!("{head}a"), "cache_salt": "s" }),
        json!({ "model": "m", "prompt": format!("{head}a"), "prompt_cache_key": "k" }),
    ] {
        assert_ne!(base, of(other.clone()), "{other}");
    }
    // A key of the client's replaces the beginning.
    let keyed = |prompt| of(json!({ "model": "m", "prompt": prompt, "prompt_cache_key": "k" }));
    assert_eq!(keyed("a"), keyed("b"));
}

#[test]
fn a_conversation_keeps_its_affinity_as_it_grows() {
    let mut messages =
        vec![json!({ "role": "system", "content": "s" }), json!({ "role": "user", "content": "u" })];
    let of = |messages: &[Value]| chat(&json!({ "messages": messages }).to_string()).affinity;
    let first = of(&messages);
    for turn in 0..3 {
        messages.push(json!({ "role": "assistant", "content": turn }));
        assert_eq!(of(&messages), first);
    }
    messages[1] = json!({ "role": "user", "content": "other" });
    assert_ne!(of(&messages), first);
}

impl Prompt<'_> {
    /// Cuts the tie to the body.
    fn into_static(self) -> Prompt<'static> {
        match self {
            Prompt::Texts(texts) => {
                Prompt::Texts(texts.into_iter().map(|t| Cow::Owned(t.into_owned())).collect())
            }
            Prompt::Tokens(prompts) => Prompt::Tokens(prompts),
            Prompt::Unscored(reason) => Prompt::Unscored(reason),
            Prompt::Chat(chat) => Prompt::Chat(Box::new(ChatPrompt {
                messages: Cow::Owned(chat.messages.into_owned()),
                tools: None,
                documents: None,
                template_kwargs: None,
                tool_choice: None,
                chat_template: None,
                add_generation_prompt: chat.add_generation_prompt,
                continue_final_message: chat.continue_final_message,
                reasoning_effort: None,
                has_media: chat.has_media,
                prompt_token_ids: chat.prompt_token_ids,
            })),
            Prompt::Responses(members) => Prompt::Responses(members),
            Prompt::Messages(members) => Prompt::Messages(members),
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_passed(bytes in prop::collection::vec(any::<u8>(), 0..120), object in any::<bool>()) {
        let body = if object { [b"{".as_slice(), &bytes].concat() } else { bytes };
        for path in KnownPath::ALL {
            let _ = extract(path, &body);
        }
    }
}
