//! The bodies of `/v1/responses`, `/v1/messages`, `/v1/embeddings` and of what only counts tokens.

use super::*;
use crate::response::ResponseKey;

fn read(path: KnownPath, body: &str) -> PromptRequest<'_> {
    extract(path, body.as_bytes()).expect("readable")
}

fn responses(body: &str) -> PromptRequest<'_> {
    read(KnownPath::Responses, body)
}

/// The members that are sent, and whether there are media.
fn members(request: PromptRequest<'_>) -> (String, bool) {
    match request.prompt {
        Prompt::Responses(members) | Prompt::Messages(members) => (members.json, members.has_media),
        other => panic!("{other:?}"),
    }
}

/// What the body is with its members in the order of the contract, and no others.
fn untouched(path: KnownPath, body: &str) {
    let (json, has_media) = members(read(path, body));
    let full: Value = serde_json::from_str(body).expect("JSON");
    let sent: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(sent, full);
    assert!(!has_media);
}

#[test]
fn of_a_responses_body_the_members_that_reach_the_tokens_are_sent_as_they_are() {
    let body = r#"{"model":"m","input": "hi ü" ,"temperature":0.5,"instructions":"be \u00fcseful",
        "tools":[ {"z":1e2} ],"store":false,"tool_choice":"auto","reasoning":{"effort" :"low"},"text":{"format":{"type":"text"}},
        "truncation":"auto","chat_template_kwargs":{"a":1.0},"previous_input_messages":[],"prompt":{"id":"p"},
        "metadata":{"input":"x"},"max_output_tokens":9,"n":5,"truncate_prompt_tokens":"x",
        "add_special_tokens":7}"#;
    let request = responses(body);
    assert_eq!((request.model.as_ref(), request.max_output_tokens), ("m", 9));
    assert_eq!((request.sequences_per_prompt, request.truncate_prompt_tokens), (1, None));
    assert_eq!((request.keeps_response, request.previous_response), (false, None));
    let sent = r#"{"input":"hi ü","instructions":"be \u00fcseful","tools":[ {"z":1e2} ],"tool_choice":"auto",
        "reasoning":{"effort" :"low"},"text":{"format":{"type":"text"}},"truncation":"auto",
        "chat_template_kwargs":{"a":1.0},"previous_input_messages":[],"prompt":{"id":"p"}}"#;
    assert_eq!(members(request), (sent.replace("\n        ", ""), false));
}

#[test]
fn a_responses_input_is_a_text_or_items_of_any_kind() {
    for input in [
        r#""""#,
        r#""hi""#,
        r#"[{"role":"user","content":"hi"}]"#,
        r#"[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]"#,
        r#"[{"type":"function_call","name":"f","arguments":"{}","call_id":"c"},
            {"type":"function_call_output","call_id":"c","output":"data:image/png;base64,AAAA"}]"#,
        r#"[{"type":"reasoning","summary":[],"encrypted_content":"AAAA"},null,7,"x",[[]]]"#,
    ] {
        untouched(KnownPath::Responses, &format!(r#"{{"input":{input}}}"#));
    }
    untouched(KnownPath::Responses, r#"{"input":[],"instructions":"go on"}"#);
    let go_on = responses(r#"{"input":[],"previous_response_id":"resp_1"}"#);
    assert_eq!(go_on.previous_response, ResponseKey::of(b"resp_1"));
    assert_eq!(members(go_on), (r#"{"input":[]}"#.to_owned(), false));
}

#[test]
fn media_of_the_new_shapes_are_told_and_replaced() {
    let payload = "A".repeat(10_000);
    let url = format!("data:image/png;base64,{payload}");
    let image = json!({ "type": "image", "source": { "type": "base64", "data": payload } });
    for (path, body) in [
        (
            KnownPath::Responses,
            json!({ "input": [{ "role": "user", "content": [
                { "type": "input_text", "text": "what is it?" }, { "type": "input_image", "image_url": url },
                { "type": "input_file", "file_data": url },
                { "type": "input_audio", "input_audio": { "data": payload } },
            ] }] }),
        ),
        (
            KnownPath::Responses,
            json!({ "input": [{ "output": [{ "type": "input_image", "image_url": url }] }] }),
        ),
        (KnownPath::Messages, json!({ "messages": [{ "role": "user", "content": [image.clone()] }] })),
        (
            KnownPath::Messages,
            json!({ "messages": [{ "content": [{ "type": "tool_result", "content": [image] }] }] }),
        ),
    ] {
        let body = body.to_string();
        let (json, has_media) = members(read(path, &body));
        assert!(has_media && json.len() < 500 && json.contains("warmpath-media:"), "{json}");
        serde_json::from_str::<Value>(&json).expect("JSON");
    }
    let body =
        json!({ "messages": [{ "role": "user", "content": [{ "image_url": { "url": url } }] }] }).to_string();
    let chat = conversation(read(KnownPath::Embeddings, &body));
    assert!(chat.has_media && chat.messages.len() < 200);
}

#[test]
fn of_a_messages_body_the_members_that_reach_the_tokens_are_sent_as_they_are() {
    untouched(KnownPath::Messages, r#"{"messages":[{"role":"user","content":"hi"}]}"#);
    untouched(
        KnownPath::Messages,
        r#"{"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],
            "messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"AAAA"},
            {"type":"tool_use","id":"t","name":"n","input":{"image":"x","content":["y"]}}]}],
            "tools":[{"name":"n","input_schema":{}}],"tool_choice":{"type":"auto"},"thinking":{"type":"disabled"},
            "output_config":{"effort":"low"},"chat_template_kwargs":{}}"#,
    );
    let body =
        r#"{"model":"m","max_tokens":9,"system":null,"messages":[{"content":"a"}],"metadata":{},"top_k":1}"#;
    let request = read(KnownPath::Messages, body);
    assert_eq!((request.model.as_ref(), request.max_output_tokens), ("m", 9));
    assert!(!request.keeps_response);
    assert_eq!(members(request).0, r#"{"messages":[{"content":"a"}]}"#);
}

#[test]
fn an_embeddings_input_has_the_forms_of_a_prompt() {
    let of = |json: &str| read(KnownPath::Embeddings, &format!(r#"{{"input":{json}}}"#)).prompt.into_static();
    assert_eq!(of(r#""a\nb""#), texts(&["a\nb"]));
    assert_eq!(of(r#"["a","b"]"#), texts(&["a", "b"]));
    assert_eq!(of("[1,2]"), Prompt::Tokens(vec![vec![1, 2]]));
    assert_eq!(of("[[1],[-0,2]]"), Prompt::Tokens(vec![vec![1], vec![0, 2]]));
    assert_eq!(of("[]"), Prompt::Unscored(Reason::NoPrompt));
    // What completions take besides is unknown here.
    let body =
        r#"{"input":"a","prompt_embeds":"AAAA","n":3,"add_special_tokens":false,"truncate_prompt_tokens":8}"#;
    let request = read(KnownPath::Embeddings, body);
    assert_eq!((request.sequences_per_prompt, request.truncate_prompt_tokens), (1, Some(8)));
    assert_eq!((request.add_special_tokens, request.prompt), (Some(false), texts(&["a"])));
}

#[test]
fn an_embeddings_conversation_generates_nothing_unless_told() {
    let body = r#"{"messages":[{"role":"user","content":"a"}],"input":"b","tools":["\ud800"],
        "reasoning_effort":3,"kv_transfer_params":{"prompt_token_ids":[1]},"chat_template_kwargs":{"x":1}}"#;
    let chat = conversation(read(KnownPath::Embeddings, body));
    assert_eq!(chat.messages, r#"[{"role":"user","content":"a"}]"#);
    assert_eq!((chat.tools, chat.template_kwargs), (None, Some(r#"{"x":1}"#)));
    assert_eq!((chat.add_generation_prompt, chat.prompt_token_ids), (Some(false), None));
    let body = r#"{"input":[{"role":"user","content":"a"}],"add_generation_prompt":true}"#;
    let chat = conversation(read(KnownPath::Embeddings, body));
    assert_eq!(chat.messages, r#"[{"role":"user","content":"a"}]"#);
    assert_eq!(chat.add_generation_prompt, Some(true));
    for body in [r#"{"messages":[[{"role":"user"}]]}"#, r#"{"input":[ [ {"role":"user"}],[{}]]}"#] {
        let prompt = read(KnownPath::Embeddings, body).prompt;
        assert_eq!(prompt, Prompt::Unscored(Reason::UnsupportedField), "{body}");
    }
}

#[test]
fn embeddings_in_place_of_a_prompt_are_recognised_everywhere() {
    let embeds = Prompt::Unscored(Reason::PromptEmbeds);
    for prompt in [r#""a""#, r#"["a","b"]"#, "[1]", "[[1]]", "null"] {
        let body = format!(r#"{{"prompt":{prompt},"prompt_embeds":["AAAA"]}}"#);
        assert_eq!(completion(&body).prompt, embeds, "{body}");
        let body = format!(r#"{{"prompt":{prompt},"prompt_embeds":[ ]}}"#);
        assert_ne!(completion(&body).prompt, embeds, "none of them: {body}");
    }
    let part = r#"[{"role":"user","content":[{"data":"AAAA","type":"prompt_embeds"}]}]"#;
    for (path, member) in [
        (KnownPath::Chat, "messages"),
        (KnownPath::Embeddings, "messages"),
        (KnownPath::Embeddings, "input"),
        (KnownPath::Responses, "input"),
    ] {
        let body = format!(r#"{{"{member}":{part}}}"#);
        assert_eq!(read(path, &body).prompt, embeds, "{body}");
    }
}

#[test]
fn what_only_counts_tokens_is_read_for_its_model_and_size() {
    for (path, body) in [
        (KnownPath::Tokenize, r#"{"model":"m","prompt":"x"}"#),
        (KnownPath::Tokenize, r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#),
        (KnownPath::Tokenize, r#"{"model":"m"}"#),
        (KnownPath::CountTokens, r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#),
        (KnownPath::CountTokens, r#"{"model":"m","messages":7}"#),
    ] {
        let request = read(path, body);
        assert_eq!(request.prompt, Prompt::Unscored(Reason::NoPrefill), "{body}");
        assert_eq!((request.model.as_ref(), request.body_bytes), ("m", body.len() as u64));
    }
}

#[test]
fn forwarded_ids_go_to_who_knows_what_the_release_does_with_them() {
    let ids = r#""kv_transfer_params":{"prompt_token_ids":[1]}"#;
    let (json, _) = members(responses(&format!(r#"{{"input":"a",{ids}}}"#)));
    assert_eq!(json, format!(r#"{{"input":"a",{ids}}}"#));
    let body = format!(r#"{{"messages":[{{"content":"a"}}],{ids}}}"#);
    assert_eq!(members(read(KnownPath::Messages, &body)).0, body);
    let picture = format!(r#"{{"input":[{{"content":[{{"type":"input_image","image_url":"x"}}]}}],{ids}}}"#);
    assert!(members(responses(&picture)).1);
    // Completions never look at them.
    assert_eq!(completion(&format!(r#"{{"prompt":"a",{ids}}}"#)).prompt, texts(&["a"]));

    let chat = |content: &str, more: &str| {
        let body = format!(r#"{{"messages":[{{"role":"user","content":{content}}}],{ids}{more}}}"#);
        match read(KnownPath::Chat, &body).prompt {
            Prompt::Chat(chat) => Ok(chat.prompt_token_ids),
            Prompt::Unscored(reason) => Err(reason),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(chat(r#""a""#, ""), Ok(Some(vec![1])));
    assert_eq!(chat(r#"[{"type":"image_url","image_url":{"url":"x"}}]"#, ""), Ok(Some(vec![1])));
    assert_eq!(chat(r#""a""#, r#","echo":true"#), Err(Reason::UnsupportedField));
}

#[test]
fn a_response_that_is_gone_on_from_must_be_named_by_a_text() {
    let previous = |value: &str| {
        let body = format!(r#"{{"input":"a","previous_response_id":{value}}}"#);
        let request = responses(&body);
        (request.previous_response, matches!(request.prompt, Prompt::Unscored(Reason::UnsupportedField)))
    };
    assert_eq!(previous(r#""resp_1""#), (ResponseKey::of(b"resp_1"), false));
    assert_eq!(previous(r#""resp_\u0031""#), (ResponseKey::of(b"resp_1"), false));
    assert_eq!(previous(r#""""#), (ResponseKey::of(b""), false));
    assert_eq!(previous("null"), (None, false));
    assert_eq!(previous("7"), (None, true));
    assert_eq!(previous(r#"["resp_1"]"#), (None, true));
    assert_eq!(previous(r#""\ud800""#), (None, true));
    // It is a member of this path alone.
    let body = r#"{"messages":[{"content":"a"}],"previous_response_id":"resp_1"}"#;
    assert_eq!(read(KnownPath::Messages, body).previous_response, None);
}

#[test]
fn the_beginning_of_every_shape_chooses_the_endpoint() {
    let of = |path, body: Value| extract(path, body.to_string().as_bytes()).expect("readable").affinity;
    let user = |text: &str| json!({ "role": "user", "content": text });
    let reply = json!({ "role": "assistant", "content": "b" });
    let billing = |value: &str| json!({ "text": format!("x-anthropic-billing-header: {value}") });
    // (path, a first request, one that goes on, others)
    for (path, first, next, others) in [
        (
            KnownPath::Responses,
            json!({ "instructions": "i", "input": [user("a")] }),
            json!({ "input": [user("a"), reply, user("c")], "instructions": "i", "tools": [1] }),
            [
                json!({ "instructions": "j", "input": [user("a")] }),
                json!({ "instructions": "i", "input": [user("x")] }),
            ],
        ),
        (
            KnownPath::Messages,
            json!({ "system": "s", "messages": [user("a")] }),
            json!({ "system": "s", "messages": [user("a"), reply, user("c")], "max_tokens": 1 }),
            [
                json!({ "system": "t", "messages": [user("a")] }),
                json!({ "system": "s", "messages": [user("x")] }),
            ],
        ),
        (
            KnownPath::Messages,
            json!({ "system": [billing("1"), { "text": "s" }], "messages": [user("a")] }),
            json!({ "system": [billing("2"), { "text": "s" }], "messages": [user("a")] }),
            [json!({ "system": [{ "text": "s" }], "messages": [] }), json!({ "messages": [user("a")] })],
        ),
        (
            KnownPath::Embeddings,
            json!({ "input": ["a", "b"] }),
            json!({ "input": "a", "dimensions": 8 }),
            [json!({ "input": "b" }), json!({ "input": [user("a")] })],
        ),
        (
            KnownPath::Chat,
            json!({ "messages": [user("a")] }),
            json!({ "messages": [user("a"), reply, user("c")] }),
            [json!({ "messages": [user("x")] }), json!({ "messages": [reply] })],
        ),
    ] {
        let affinity = of(path, first.clone());
        assert_eq!(affinity, of(path, next), "{first}");
        for other in others {
            assert_ne!(affinity, of(path, other.clone()), "{other}");
        }
    }
}

#[test]
fn requests_that_go_on_from_one_response_stay_together() {
    let of = |body: Value| responses(&body.to_string()).affinity;
    let first = of(json!({ "model": "m", "input": "a", "previous_response_id": "r" }));
    assert_eq!(first, of(json!({ "model": "n", "input": "b", "previous_response_id": "r" })));
    let about = PromptRequest::about(ResponseKey::of(b"r").expect("a key"));
    assert_eq!(first, about.affinity);
    assert_ne!(first, of(json!({ "model": "m", "input": "a", "previous_response_id": "q" })));
    // A key of the client's is there from the first request on, and so comes first.
    let keyed = |id| of(json!({ "input": "a", "previous_response_id": id, "prompt_cache_key": "k" }));
    assert_eq!(keyed(Value::Null), keyed(json!("r")));
}
