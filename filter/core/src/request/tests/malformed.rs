//! Bodies that no client should send: what comes of each, on every path that it can reach. None of them is changed or
//! refused by us; only a body that is no JSON object at all is not asked about.

use super::*;

use KnownPath::{Chat, Completions, CountTokens, Embeddings, Messages, Responses, Tokenize};
use Reason::{
    BadPrompt, EmptyBody, FieldTooLong, LoneSurrogate, NoPrefill, NoPrompt, NotJson, PromptEmbeds,
    TokenOutOfRange, TooDeep, Unreadable, UnsupportedField,
};

/// What comes of a body.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Comes {
    /// A prompt, which the indexer judges further.
    Prompt,
    /// Asked about without a prompt.
    Unscored(Reason),
    /// Passed on without asking.
    Passed(Reason),
}

use Comes::{Passed, Unscored};

fn comes(path: KnownPath, body: &[u8]) -> Comes {
    match extract(path, body) {
        Err(reason) => Passed(reason),
        Ok(request) => match request.prompt {
            Prompt::Unscored(reason) => Unscored(reason),
            Prompt::Texts(_)
            | Prompt::Tokens(_)
            | Prompt::Chat(_)
            | Prompt::Responses(_)
            | Prompt::Messages(_) => Comes::Prompt,
        },
    }
}

#[test]
fn strange_members_of_messages_are_the_engines_business() {
    // Elements of `messages` (of `input` for responses and embeddings).
    let messages = [
        r#"null"#,
        r#"7"#,
        r#""text""#,
        r#"[]"#,
        r#"{}"#,
        r#"{"role":"user"}"#,
        r#"{"role":null,"content":null}"#,
        r#"{"role":7,"content":7}"#,
        r#"{"role":"user","content":true}"#,
        r#"{"role":"user","content":{}}"#,
        r#"{"role":"user","content":[]}"#,
        r#"{"role":"user","content":[null]}"#,
        r#"{"role":"user","content":[[[]],7,"a",false]}"#,
        r#"{"role":"user","content":[{"type":"text"}]}"#,
        r#"{"role":"user","content":[{"type":"text","text":null}]}"#,
        r#"{"role":"user","content":[{"type":"text","text":{"a":[]}}]}"#,
        r#"{"role":"user","content":[{"type":null,"text":"a"}]}"#,
        r#"{"role":"user","content":[{"type":["text"],"text":"a"}]}"#,
        r#"{"role":"user","content":[{"type":"image_url","image_url":null}]}"#,
        r#"{"role":"user","content":[{"type":"image_url","image_url":[[],null,{"url":[]}]}]}"#,
        r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":{"url":"x"}}}]}"#,
        r#"{"role":"user","content":[{"image_embeds":{"":null,"a":[1]}}]}"#,
        r#"{"role":"user","content":[{"type":"image","source":[{"data":7}]}]}"#,
        r#"{"role":"user","content":[{"type":"tool_result","content":[null,{"source":null}]}]}"#,
        r#"{"role":"user","name":7,"content":"a"}"#,
        r#"{"role":"user","content":"a","content":null}"#,
        r#"{"role":"user","content":"a","cont\u0065nt":["b"]}"#,
        r#"{"role":"user","content":"a","":{"":{"":""}}}"#,
        r#"{"role":"assistant","content":null,"tool_calls":null}"#,
        r#"{"role":"assistant","tool_calls":[null]}"#,
        r#"{"role":"assistant","tool_calls":{}}"#,
        r#"{"role":"assistant","tool_calls":[{"function":null}]}"#,
        r#"{"role":"assistant","tool_calls":[{"function":{"name":7,"arguments":null}}]}"#,
        r#"{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{not json"}}]}"#,
        r#"{"role":"assistant","reasoning":7,"reasoning_content":[]}"#,
        r#"{"role":"tool","content":[{"type":"text","text":"a"}],"tool_call_id":null}"#,
        r#"{"role":"developer","content":"\u0000"}"#,
        r#"{"role":"user","content":1e999}"#,
        r#"{"role":"user","content":-0.0e-999999999999999999999}"#,
        r#"{"type":"function_call_output","output":[null,{"image_url":7}]}"#,
        r#"{"type":"reasoning","summary":null,"content":7}"#,
    ];
    for message in messages {
        for (path, member) in
            [(Chat, "messages"), (Messages, "messages"), (Responses, "input"), (Embeddings, "messages")]
        {
            let body = format!(r#"{{"{member}":[{message}]}}"#);
            assert_eq!(comes(path, body.as_bytes()), Comes::Prompt, "{path:?} {body}");
        }
        for path in [Tokenize, CountTokens] {
            let body = format!(r#"{{"messages":[{message}]}}"#);
            assert_eq!(comes(path, body.as_bytes()), Unscored(NoPrefill), "{path:?} {body}");
        }
    }
}

#[test]
fn each_malformed_body_has_its_reason() {
    for (path, body, expected) in [
        // No prompt, or one of the wrong kind.
        (Chat, r#"{"messages":true}"#, Unscored(BadPrompt)),
        (Chat, r#"{"messages":"[{}]"}"#, Unscored(BadPrompt)),
        (Chat, r#"{"messages":[{}],"messages":7}"#, Unscored(BadPrompt)),
        (Chat, r#"{"m\u0065ssages":[]}"#, Unscored(NoPrompt)),
        (Chat, r#"{"Messages":[{}]}"#, Unscored(NoPrompt)),
        (Chat, r#"{"prompt":"a","input":"a"}"#, Unscored(NoPrompt)),
        (Completions, r#"{"prompt":{"text":"a"}}"#, Unscored(BadPrompt)),
        (Completions, r#"{"prompt":[null,"a"]}"#, Unscored(BadPrompt)),
        (Completions, r#"{"prompt":[true]}"#, Unscored(BadPrompt)),
        (Completions, r#"{"prompt":[[1],"a"]}"#, Unscored(BadPrompt)),
        (Completions, r#"{"prompt":[[1,[2]]]}"#, Unscored(BadPrompt)),
        (Completions, r#"{"prompt":[[1],null]}"#, Unscored(BadPrompt)),
        (Completions, r#"{"messages":[{}]}"#, Unscored(NoPrompt)),
        (Completions, r#"{"prompt":"a","prompt_embeds":7}"#, Unscored(PromptEmbeds)),
        (Completions, r#"{"prompt":"a","prompt_embeds":"]"}"#, Unscored(PromptEmbeds)),
        (Completions, r#"{"prompt":[4294967296]}"#, Unscored(TokenOutOfRange)),
        (Completions, r#"{"prompt":[1e400]}"#, Unscored(TokenOutOfRange)),
        (Completions, r#"{"prompt":[-9223372036854775809]}"#, Unscored(TokenOutOfRange)),
        (Responses, "{}", Unscored(NoPrompt)),
        (Responses, r#"{"input":null,"instructions":"a"}"#, Unscored(NoPrompt)),
        (Responses, r#"{"input":[ ]}"#, Unscored(NoPrompt)),
        (Responses, r#"{"input":7}"#, Unscored(BadPrompt)),
        (Responses, r#"{"input":{"role":"user"}}"#, Unscored(BadPrompt)),
        (Responses, r#"{"messages":[{}]}"#, Unscored(NoPrompt)),
        (Messages, r#"{"messages":{}}"#, Unscored(BadPrompt)),
        (Messages, r#"{"messages":[],"system":"a"}"#, Unscored(NoPrompt)),
        (Messages, r#"{"input":"a"}"#, Unscored(NoPrompt)),
        (Embeddings, r#"{"input":true}"#, Unscored(BadPrompt)),
        (Embeddings, r#"{"input":["a",null]}"#, Unscored(BadPrompt)),
        (Embeddings, r#"{"input":{"a":1}}"#, Unscored(BadPrompt)),
        (Embeddings, r#"{"messages":"a","input":"b"}"#, Unscored(BadPrompt)),
        (Embeddings, r#"{"prompt":"a"}"#, Unscored(NoPrompt)),
        // Other members that change the prompt.
        (Chat, r#"{"messages":[{}],"chat_template_kwargs":"x"}"#, Unscored(UnsupportedField)),
        (Chat, r#"{"messages":[{}],"chat_template":{}}"#, Unscored(UnsupportedField)),
        (Chat, r#"{"messages":[{}],"truncation_side":[]}"#, Unscored(UnsupportedField)),
        (Chat, r#"{"messages":[{}],"truncate_prompt_tokens":1e3}"#, Unscored(UnsupportedField)),
        (
            Completions,
            r#"{"prompt":"a","truncate_prompt_tokens":9223372036854775808}"#,
            Unscored(UnsupportedField),
        ),
        (Completions, r#"{"prompt":"a","model":{}}"#, Unscored(UnsupportedField)),
        (Responses, r#"{"input":"a","instructions":["b"]}"#, Unscored(UnsupportedField)),
        (Responses, r#"{"input":"a","chat_template_kwargs":[]}"#, Unscored(UnsupportedField)),
        (Responses, r#"{"input":"a","previous_response_id":{}}"#, Unscored(UnsupportedField)),
        (Messages, r#"{"messages":[{}],"system":7}"#, Unscored(UnsupportedField)),
        (Messages, r#"{"messages":[{}],"thinking":"on"}"#, Unscored(UnsupportedField)),
        (Messages, r#"{"messages":[{}],"output_config":[]}"#, Unscored(UnsupportedField)),
        (Tokenize, r#"{"prompt":"a","model":7}"#, Unscored(NoPrefill)),
        // The same, where engines do not know the member, or do not look at its type.
        (Chat, r#"{"messages":[{}],"tools":"x","documents":7,"tool_choice":[]}"#, Comes::Prompt),
        (Chat, r#"{"messages":[{}],"prompt_embeds":"AAAA","input":7,"system":7}"#, Comes::Prompt),
        (Chat, r#"{"messages":[{}],"n":[],"max_tokens":"x","stream":7,"stream_options":""}"#, Comes::Prompt),
        (Responses, r#"{"input":"a","tools":7,"reasoning":[],"text":"x","truncation":7}"#, Comes::Prompt),
        (Responses, r#"{"input":"a","truncate_prompt_tokens":"x","store":"no"}"#, Comes::Prompt),
        (Messages, r#"{"messages":[{}],"system":[],"tools":{},"previous_response_id":7}"#, Comes::Prompt),
        (Messages, r#"{"messages":[{}],"system":[null,7,{"text":7}]}"#, Comes::Prompt),
        // Halves of surrogate pairs.
        (Chat, r#"{"messages":[{"\ud800":1}]}"#, Unscored(LoneSurrogate)),
        (Chat, r#"{"messages":[{}],"chat_template_kwargs":{"a":"\udfff"}}"#, Unscored(LoneSurrogate)),
        (Completions, r#"{"prompt":["a","\ud83d\u0061"]}"#, Unscored(LoneSurrogate)),
        (Responses, r#"{"input":"\ud83d"}"#, Unscored(LoneSurrogate)),
        (Responses, r#"{"input":[{"content":"\ude00\ud83d"}]}"#, Unscored(LoneSurrogate)),
        (Responses, r#"{"input":"a","instructions":"\ud83d"}"#, Unscored(LoneSurrogate)),
        (Messages, r#"{"messages":[{}],"system":"\ud83d"}"#, Unscored(LoneSurrogate)),
        (Embeddings, r#"{"input":"\ud83d"}"#, Unscored(LoneSurrogate)),
        (Completions, r#"{"prompt":"a","\ud83d":"\ud83d","user":"\ud83d"}"#, Comes::Prompt),
        // Marks, white space, and characters that JSON does not mind.
        (Completions, "\u{feff}{\"prompt\":\"a\"}", Comes::Prompt),
        (Completions, "\u{feff}\u{feff}{\"prompt\":\"a\"}", Passed(NotJson)),
        (Completions, " \r\n\t{ \"prompt\"\n:\t\"a\" } \r\n", Comes::Prompt),
        (Completions, "{\"prompt\":\"\u{7f}\u{2028}\u{feff}\u{10ffff}\"}", Comes::Prompt),
        (Completions, "\u{a0}{\"prompt\":\"a\"}", Passed(NotJson)),
        (Completions, "{\"prompt\":\"a\nb\"}", Passed(Unreadable)),
        (Completions, "{\"prompt\":\"a\"}\u{0}", Passed(Unreadable)),
        // No JSON object.
        (Responses, "", Passed(EmptyBody)),
        (Messages, "null", Passed(NotJson)),
        (Embeddings, "\"input\"", Passed(NotJson)),
        (Tokenize, "prompt=a", Passed(NotJson)),
        (CountTokens, "{'messages':[]}", Passed(Unreadable)),
        (Responses, r#"{"input":"a",}"#, Passed(Unreadable)),
        (Responses, r#"{"input":"a"}{"input":"b"}"#, Passed(Unreadable)),
        (Messages, r#"{"messages":[{}]"#, Passed(Unreadable)),
        (Chat, r#"{"messages":[{"content":Infinity}]}"#, Passed(Unreadable)),
        (Chat, r#"{"messages":[{"content":"\x41"}]}"#, Passed(Unreadable)),
        (Chat, r#"{"messages":[{"content":"\u00"}]}"#, Passed(Unreadable)),
        (Chat, "{\"messages\":[{}] // said\n}", Passed(Unreadable)),
    ] {
        assert_eq!(comes(path, body.as_bytes()), expected, "{path:?} {body}");
    }
}

#[test]
fn what_is_too_deep_or_too_long_is_passed_on_every_path() {
    for path in KnownPath::ALL {
        for brackets in [("[", "]"), (r#"{"a":"#, "}")] {
            let nested = |levels: usize| {
                let (open, close) = (brackets.0.repeat(levels), brackets.1.repeat(levels));
                format!(r#"{{"messages":[{{"content":{open}1{close}}}],"input":"a","prompt":"a"}}"#)
            };
            // The list and the message are two levels by themselves.
            let deepest = JSON_DEPTH_MAX as usize - 2;
            assert!(!matches!(comes(path, nested(deepest).as_bytes()), Passed(_)), "{path:?}");
            assert_eq!(comes(path, nested(deepest + 1).as_bytes()), Passed(TooDeep), "{path:?}");
            assert_eq!(comes(path, nested(200_000).as_bytes()), Passed(TooDeep), "{path:?}");
        }
        let long = json!({ "input": "a", "model": "ä".repeat(257) }).to_string();
        assert_eq!(comes(path, long.as_bytes()), Passed(FieldTooLong), "{path:?}");
        for bytes in [b"{\"a\":\"\xff\"}".as_slice(), b"{\"a\":\"\xed\xa0\x80\"}", b"{\"a\":\"\xc3\"}"] {
            assert_eq!(comes(path, bytes), Passed(Unreadable), "{path:?}");
        }
    }
}

#[test]
fn huge_numbers_and_many_members_are_read_in_one_pass() {
    let digits = "9".repeat(100_000);
    let members = r#""a":1,"a":{"a":[]},"#.repeat(20_000);
    let body = format!(r#"{{{members}"n":{digits},"seed":-{digits}.{digits}e{digits},"prompt":"a"}}"#);
    let request = extract(Completions, body.as_bytes()).expect("readable");
    assert_eq!((request.prompt, request.sequences_per_prompt), (texts(&["a"]), 1));
}
