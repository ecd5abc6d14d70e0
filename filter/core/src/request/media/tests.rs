//! What is replaced in each dialect, and what is not.

use super::*;

fn read(text: &str) -> Messages<'_> {
    Messages::read(text, &CHAT).expect("a JSON array")
}

fn digested(payload: &str) -> String {
    format!("\"warmpath-media:{:032x}\"", digest(payload))
}

#[test]
fn text_is_borrowed_untouched_even_where_it_looks_like_media() {
    let text = r#"[ {"role":"user", "content":"data:image/png;base64,AAAA", "image_url":{"url":"x"}},
        {"content":[{"type":"text","text":"{\"image_url\":\"x\"}"}, null, 3, "image_url"]}, null ]"#;
    let messages = read(text);
    assert!(matches!(messages.json, Cow::Borrowed(json) if json == text));
    assert!(!messages.has_media && !messages.has_embeds && messages.only_text);
}

#[test]
fn payloads_become_digests_and_nothing_else_changes() {
    let text = r#"[{"role":"user","content":[{"type":"image_url","image_url":{"url":"AAAA","detail":"low"}},
        {"type":"input_audio","input_audio":{"data":"BBBB","format":"wav"}},{"type":"text","text":"AAAA"},
        {"image_\u0075rl":"AAAA"},{"image_url":{"url":null}},{"image_embeds":{"any":"BBBB","x":null}},
        {"audio_url":["AAAA",{"url":"BBBB"},7]}]}]"#;
    let expected = text
        .replace(r#""url":"AAAA""#, &format!(r#""url":{}"#, digested("AAAA")))
        .replace(r#""BBBB""#, &digested("BBBB"))
        .replace(r#"\u0075rl":"AAAA""#, &format!(r#"\u0075rl":{}"#, digested("AAAA")))
        .replace(r#"["AAAA""#, &format!("[{}", digested("AAAA")));
    let messages = read(text);
    assert_eq!(messages.json, expected);
    assert!(messages.has_media && !messages.only_text);
    assert_ne!(digest("AAAA"), digest("BBBB"));
}

#[test]
fn each_dialect_has_its_own_places() {
    // (dialect, a message, the payloads that are replaced)
    for (dialect, text, payloads) in [
        (&CHAT, r#"[{"content":{"type":"image_url","image_url":"AAAA"}}]"#, ["AAAA"].as_slice()),
        (&CHAT, r#"[{"content":[{"type":"text","source":{"data":"AAAA"},"file_data":"BBBB"}]}]"#, &[]),
        (&CHAT, r#"[{"output":[{"image_url":"AAAA"}]}]"#, &[]),
        (
            &RESPONSES,
            r#"[{"content":[{"type":"input_image","image_url":"AAAA","detail":"auto"}]}]"#,
            &["AAAA"],
        ),
        (&RESPONSES, r#"[{"content":[{"type":"input_file","filename":"a","file_data":"AAAA"}]}]"#, &["AAAA"]),
        (&RESPONSES, r#"[{"type":"function_call_output","output":[{"image_url":"AAAA"}]}]"#, &["AAAA"]),
        (&RESPONSES, r#"[{"type":"computer_call_output","output":{"image_url":"AAAA"}}]"#, &["AAAA"]),
        (&RESPONSES, r#"[{"type":"function_call_output","output":"AAAA"}]"#, &[]),
        (&RESPONSES, r#"[{"type":"reasoning","encrypted_content":"AAAA"}]"#, &[]),
        (
            &MESSAGES,
            r#"[{"content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},
                {"type":"tool_result","tool_use_id":"t","content":[{"type":"document","source":{"url":"BBBB"}}]}]}]"#,
            &["AAAA", "BBBB"],
        ),
        (&MESSAGES, r#"[{"content":[{"type":"redacted_thinking","data":"AAAA"}]}]"#, &[]),
        (&MESSAGES, r#"[{"content":[{"content":[{"content":[{"source":{"data":"AAAA"}}]}]}]}]"#, &[]),
    ] {
        let messages = Messages::read(text, dialect).expect("a JSON array");
        let expected = payloads.iter().fold(text.to_owned(), |text, payload| {
            text.replace(&format!("\"{payload}\""), &digested(payload))
        });
        assert_eq!(messages.json, expected);
        assert_eq!(messages.has_media, !payloads.is_empty(), "{text}");
    }
}

#[test]
fn what_kind_of_parts_there_are_is_told() {
    // (a part, media, embeddings, only text)
    for (part, media, embeds, only_text) in [
        (r#"{"type":"text","text":"a"}"#, false, false, true),
        (r#"{"text":"a"}"#, false, false, true),
        (r#""a""#, false, false, true),
        (r#"{"type":"thinking","thinking":"a"}"#, false, false, true),
        (r#"{"type":"text","text":"a","image_url":null}"#, false, false, false),
        (r#"{"type":"image_url","uuid":"u","image_url":null}"#, true, false, false),
        (r#"{"type":"image_url"}"#, true, false, false),
        (r#"{"image_url":{}}"#, true, false, false),
        (r#"{"type":"prompt_embeds","data":"AAAA"}"#, false, true, false),
        (r#"{"type":"prompt_\u0065mbeds","data":"AAAA"}"#, false, true, false),
        (r#"{"type":"invented"}"#, false, false, false),
        (r#"{"type":null}"#, false, false, false),
        (r#"{"type":7}"#, false, false, false),
    ] {
        let text = format!(r#"[{{"role":"user","content":[{part}]}}]"#);
        let messages = read(&text);
        let told = (messages.has_media, messages.has_embeds, messages.only_text);
        assert_eq!(told, (media, embeds, only_text), "{part}");
    }
}

#[test]
fn a_digest_does_not_depend_on_escapes() {
    assert_eq!(digest("data:image/png"), digest(r"data:image\/png"));
    assert_eq!(digest("A"), digest(r"\u0041"));
    assert_ne!(digest(r"\ud800"), digest(""));
}

#[test]
fn the_head_ends_with_the_first_message_of_the_user() {
    assert_eq!(read(r#"[{"a":1}, {"b":2} ,{"c":3}]"#).head, r#"{"a":1}, {"b":2}"#);
    assert_eq!(read(r#"[{"a":1}]"#).head, r#"{"a":1}"#);
    assert_eq!(read(r#"[{"role":"user"}, {"role":"assistant"}]"#).head, r#"{"role":"user"}"#);
    assert_eq!(read(r#"[null,{"role":"user"},{"role":"user"}]"#).head, r#"null,{"role":"user"}"#);
    assert_eq!(read("[]").head, "");
}
