//! What no client should send, and some do: it reaches the engine as it is, and nothing of ours fails over it.

use anyhow::{Context as _, Result, ensure};
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use warmpath_core::path::KnownPath;
use warmpath_core::request::{Prompt, extract};
use warmpath_tests::case::case;
use warmpath_tests::client::{Answer, Call, Framing};
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::stack::{Stack, StackBuilder};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn recorder_and_real_indexer() -> Result<StackBuilder> {
    Ok(Stack::builder()?.recorders(1))
}

/// Sends it and checks that it was answered by the engine, and reached it as it was written. A question that the
/// indexer refuses, or an answer that the filter cannot read, is a defect of ours and shows as a fallback.
async fn survives(stack: &Stack, call: Call) -> Result<Answer> {
    let body = call.body().clone();
    let answer = stack.send(call).await?;
    ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    let receipt = answer.receipt();
    ensure!(receipt.outcome != "fallback", "{receipt:?}");
    let received = stack.recorders[0].take();
    ensure!(received.len() == 1, "{} requests arrived", received.len());
    ensure!(received[0].body == body, "another body arrived");
    Ok(answer)
}

// A6 (kubernetes-sigs/gateway-api-inference-extension#1436)
#[test]
fn a_body_that_does_not_parse_or_comes_in_single_bytes_fails_nothing() {
    case(recorder_and_real_indexer(), async |stack| {
        let whole = completion(text(1, 40));
        let in_bytes = survives(stack, whole.clone().framing(Framing::Chunked(1))).await?;
        assert_eq!(in_bytes.receipt().outcome, "load_only", "read to its end: {:?}", in_bytes.receipt());
        assert_eq!(in_bytes.receipt().reason, "no_events");
        // A byte order mark in front is skipped, as the engine does.
        let with_mark = [b"\xef\xbb\xbf", whole.body().as_ref()].concat();
        let marked = survives(stack, Call::post(COMPLETIONS, with_mark)).await?.receipt();
        assert_eq!((marked.outcome.as_str(), marked.reason.as_str()), ("load_only", "no_events"));
        let cut = whole.body().slice(..whole.body().len() - 3);
        let in_latin_1 = b"{\"model\":\"qwen3\",\"prompt\":\"caf\xe9\"}".to_vec();
        for (body, reason) in
            [(cut.to_vec(), "unreadable"), (in_latin_1, "unreadable"), (b"hi".to_vec(), "not_json")]
        {
            for framing in [Framing::Length, Framing::Chunked(1)] {
                let answer = survives(stack, Call::post(COMPLETIONS, body.clone()).framing(framing)).await?;
                let receipt = answer.receipt();
                assert_eq!((receipt.outcome.as_str(), receipt.reason.as_str()), ("passed", reason));
            }
        }
        Ok(())
    });
}

// A16 (JustVugg/colibri#1589)
#[test]
fn halves_of_surrogate_pairs_are_the_engines_business() {
    let bodies = [
        (COMPLETIONS, r#"{"model":"qwen3","prompt":"\ud83d"}"#),
        (COMPLETIONS, r#"{"model":"qwen3","prompt":["fine","\ude00\ud83d"]}"#),
        (COMPLETIONS, r#"{"model":"qw\ud83den3","prompt":"hi"}"#),
        (COMPLETIONS, r#"{"model":"qwen3","prompt":"hi","cache_salt":"\udfff"}"#),
        (COMPLETIONS, r#"{"model":"qwen3","prompt":"hi","\ud800":"a key"}"#),
        (CHAT, r#"{"model":"qwen3","messages":[{"role":"user","content":"a \ud83d b"}]}"#),
        (
            CHAT,
            r#"{"model":"qwen3","messages":[{"role":"user","content":[{"type":"text","text":"\ud83d"}]}]}"#,
        ),
        (CHAT, r#"{"model":"qwen3","messages":[{"role":"\ud83d","content":"hi"}]}"#),
        (
            CHAT,
            r#"{"model":"qwen3","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f","description":"\udc00"}}]}"#,
        ),
    ];
    case(recorder_and_real_indexer(), async |stack| {
        for (path, body) in bodies {
            let answer = survives(stack, Call::post(path, body)).await.context(body)?;
            assert_ne!(answer.receipt().outcome, "scored", "{body}: no tokenizer takes it");
        }
        // A whole pair is text like any other.
        let pair = Call::post(COMPLETIONS, r#"{"model":"qwen3","prompt":"\ud83d\ude00"}"#);
        assert_eq!(survives(stack, pair).await?.receipt().reason, "no_events");
        Ok(())
    });
}

/// Messages that no engine takes, or that one of them took once. Each is sent as the messages of a chat, as the input
/// of a response, and as messages with a count of their tokens.
const MESSAGES: [&str; 34] = [
    "null",
    "7",
    "\"text\"",
    "{}",
    "[]",
    "[null]",
    "[[]]",
    "[7]",
    "[\"hi\"]",
    "[{}]",
    "[{\"role\":null,\"content\":null}]",
    "[{\"role\":7,\"content\":\"hi\"}]",
    "[{\"role\":[\"user\"],\"content\":\"hi\"}]",
    "[{\"role\":\"\",\"content\":\"\"}]",
    "[{\"role\":\"wizard\",\"content\":\"hi\"}]",
    "[{\"content\":\"hi\"}]",
    "[{\"role\":\"user\"}]",
    "[{\"role\":\"user\",\"content\":7}]",
    "[{\"role\":\"user\",\"content\":true}]",
    "[{\"role\":\"user\",\"content\":{}}]",
    "[{\"role\":\"user\",\"content\":{\"type\":\"text\",\"text\":\"hi\"}}]",
    "[{\"role\":\"user\",\"content\":[null]}]",
    "[{\"role\":\"user\",\"content\":[[]]}]",
    "[{\"role\":\"user\",\"content\":[{}]}]",
    "[{\"role\":\"user\",\"content\":[{\"type\":null,\"text\":\"hi\"}]}]",
    "[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]",
    "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":null}]}]",
    "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]",
    "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":null}]}]",
    "[{\"role\":\"user\",\"content\":[{\"type\":\"hologram\",\"hologram\":[1,2]}]}]",
    "[{\"role\":\"assistant\",\"tool_calls\":[null]}]",
    "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":7,\"arguments\":7}}]}]",
    "[{\"role\":\"assistant\",\"tool_calls\":{\"function\":null}}]",
    "[{\"role\":\"tool\",\"name\":7,\"tool_call_id\":[],\"content\":[{\"type\":\"tool_result\",\"content\":[null]}]}]",
];

/// Members beside an ordinary prompt that are not what they should be.
const MEMBERS: [&str; 18] = [
    r#""model":null"#,
    r#""model":7"#,
    r#""model":["qwen3"]"#,
    r#""tools":[null]"#,
    r#""tools":{}"#,
    r#""tools":[{"type":"function","function":null}]"#,
    r#""tools":[{"type":"function","function":{"name":7,"parameters":[]}}]"#,
    r#""tool_choice":7"#,
    r#""chat_template_kwargs":[]"#,
    r#""documents":"none""#,
    r#""add_generation_prompt":"yes""#,
    r#""continue_final_message":7"#,
    r#""reasoning_effort":{}"#,
    r#""cache_salt":7"#,
    r#""n":-1,"max_tokens":1e99"#,
    r#""truncate_prompt_tokens":{}"#,
    r#""kv_transfer_params":{"prompt_token_ids":[null,"1",-1]}"#,
    r#""instructions":[7],"system":{"a":[null]},"previous_response_id":{}"#,
];

// A18 (decolua/9router#3764)
#[test]
fn malformed_shapes_reach_the_engine_and_break_nothing() {
    case(recorder_and_real_indexer(), async |stack| {
        // Whatever Envoy answered while the stack came up is not about these bodies.
        let failures = async |stack: &Stack| -> Result<f64> {
            let class = [("envoy_response_code_class", "5")];
            Ok(stack.envoy.metrics().await?.sum("envoy_http_downstream_rq_xx", &class))
        };
        let before = failures(stack).await?;
        for messages in MESSAGES {
            for (path, member) in [
                (CHAT, "messages"),
                ("/v1/responses", "input"),
                ("/v1/messages", "messages"),
                ("/v1/messages/count_tokens", "messages"),
                ("/v1/embeddings", "input"),
                ("/tokenize", "messages"),
            ] {
                let body = format!(r#"{{"model":"qwen3","{member}":{messages}}}"#);
                survives(stack, Call::post(path, body.clone()))
                    .await
                    .with_context(|| format!("{path} {body}"))?;
            }
        }
        for member in MEMBERS {
            let talk = r#"[{"role":"user","content":"hi"}]"#;
            for (path, prompt) in [
                (COMPLETIONS, r#""prompt":"hi""#.to_owned()),
                (CHAT, format!(r#""messages":{talk}"#)),
                ("/v1/responses", format!(r#""input":{talk}"#)),
                ("/v1/messages", format!(r#""messages":{talk}"#)),
                ("/v1/embeddings", r#""input":"hi""#.to_owned()),
                ("/tokenize", r#""prompt":"hi""#.to_owned()),
            ] {
                let body = format!(r#"{{"model":"qwen3",{prompt},{member}}}"#);
                survives(stack, Call::post(path, body.clone()))
                    .await
                    .with_context(|| format!("{path} {body}"))?;
            }
        }
        // What is next is served as ever.
        let answer = survives(stack, completion(text(1, 40))).await?;
        assert_eq!(answer.receipt().reason, "no_events");
        assert_eq!(failures(stack).await? - before, 0.0, "answers of 500 and above");
        Ok(())
    });
}

// A23 (envoyproxy/envoy#45202)
#[test]
fn bodies_with_keys_that_stand_twice_are_read_as_a_full_parser_reads_them() {
    const BODIES: usize = 10_000;
    let mut random = Pcg64Mcg::seed_from_u64(23);
    let mut twice = 0;
    for _ in 0..BODIES {
        let (body, members) = random_object(&mut random, 3);
        let full: Value = serde_json::from_str(&body).unwrap();
        twice += usize::from(full.as_object().unwrap().len() < members);
        let ours = extract(KnownPath::Completions, body.as_bytes()).unwrap();
        let text = |name: &str| full[name].as_str().unwrap_or_default();
        assert_eq!(ours.model, text("model"), "{body}");
        assert_eq!(ours.cache_salt, text("cache_salt"), "{body}");
        match (&ours.prompt, &full["prompt"]) {
            (Prompt::Texts(texts), Value::String(prompt)) => assert_eq!(texts, &[prompt.as_str()], "{body}"),
            (Prompt::Unscored(_), Value::String(prompt)) => {
                // A name or a salt that is no text makes it another prompt than its text alone.
                let is_odd = |name: &str| !full[name].is_null() && !full[name].is_string();
                assert!(prompt.is_empty() || is_odd("model") || is_odd("cache_salt"), "{body}");
            }
            (Prompt::Unscored(_), _) => {}
            other => panic!("{body}: {other:?}"),
        }
    }
    assert!(twice > BODIES / 2, "only {twice} bodies had a key twice");
}

/// A JSON object whose keys are few, sometimes escaped, and so often stand there twice; and its number of members.
fn random_object(random: &mut Pcg64Mcg, depth: u32) -> (String, usize) {
    const KEYS: [&str; 7] =
        ["model", "prompt", "cache_salt", "m\\u006fdel", "\\u0070rompt", "cache\\u005fsalt", "x"];
    const TEXTS: [&str; 5] = ["", "a", "b\\n", "\\u00e9", "\\\"}"];
    let members = random.random_range(0..8);
    let list: Vec<String> = (0..members)
        .map(|_| {
            let key = KEYS[random.random_range(0..KEYS.len())];
            let value = match random.random_range(0..8) {
                0 if depth > 0 => random_object(random, depth - 1).0,
                1 if depth > 0 => format!("[{}]", random_object(random, depth - 1).0),
                2 => "null".to_owned(),
                3 => "-1.5e3".to_owned(),
                _ => format!("\"{}\"", TEXTS[random.random_range(0..TEXTS.len())]),
            };
            format!("\"{key}\" : {value}")
        })
        .collect();
    (format!("{{{}}}", list.join(",")), members)
}
