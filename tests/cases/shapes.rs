//! Which part of a body is the prompt: every shape that engines take is read as the engine reads it, and what does not
//! reach the token ids never matters.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use warmpath_tests::case::case;
use warmpath_tests::client::Call;
use warmpath_tests::prompts::{chat, completion, text};
use warmpath_tests::scripted::Script;
use warmpath_tests::stack::{MODEL, Stack, StackBuilder};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// Sends it twice: scored both times as the engine computes it, and known the second time.
async fn scored_twice(stack: &Stack, what: &str, call: Call) -> Result<()> {
    for turn in 0..2 {
        let answer =
            stack.send_predicted(call.clone()).await.with_context(|| format!("{what}, turn {turn}"))?;
        let cached = answer.receipt().cached_tokens;
        ensure!((turn == 0) == (cached == Some(0)), "{what}, turn {turn}: {cached:?} tokens are cached");
    }
    Ok(())
}

// A1 (kubernetes-sigs/gateway-api-inference-extension#790)
#[test]
fn the_path_decides_which_member_is_the_prompt() {
    case(Stack::builder().map(StackBuilder::without_speculation), async |stack| {
        let messages = |seed| json!([{ "role": "user", "content": text(seed, 100) }]);
        let requests = [
            (CHAT, json!({ "model": MODEL, "messages": messages(1) })),
            (COMPLETIONS, json!({ "model": MODEL, "prompt": text(2, 100) })),
            // The member of the other path is nothing to this one.
            (CHAT, json!({ "model": MODEL, "messages": messages(3), "prompt": text(4, 200) })),
            (COMPLETIONS, json!({ "model": MODEL, "prompt": text(5, 100), "messages": messages(6) })),
        ];
        for (path, body) in requests {
            scored_twice(stack, path, Call::json(path, &body)).await?;
        }
        Ok(())
    });
}

// A3 (kubernetes-sigs/gateway-api-inference-extension#2835)
#[test]
fn token_ids_are_scored_without_any_tokenizer() {
    let stack =
        Stack::builder().map(|stack| stack.indexer(|config| config["models"] = json!([{ "name": MODEL }])));
    case(stack, async |stack| {
        let prompt = text(1, 256);
        let ids = stack.engines[0].tokenize(&prompt).await?;
        for shape in [json!(ids), json!([ids])] {
            let answer = stack.send_alone(completion(shape)).await?;
            assert_eq!(answer.receipt().outcome, "scored", "{:?}", answer.receipt());
        }
        let again = stack.send_alone(completion(ids)).await?;
        assert_eq!(again.receipt().cached_tokens, Some(240));
        assert_eq!(again.usage()?.cached_tokens, Some(240));
        // Nothing else could have been asked for the ids: the text has none here.
        let as_text = stack.send_alone(completion(prompt)).await?.receipt();
        assert_eq!((as_text.outcome.as_str(), as_text.reason.as_str()), ("load_only", "no_tokenizer"));
        Ok(())
    });
}

// A4 (sgl-project/sglang#35262)
#[test]
fn token_ids_that_no_engine_knows_are_forwarded_and_counted() {
    let stack = Stack::builder().map(|stack| stack.recorders(1));
    case(stack, async |stack| {
        let odd = [
            "[4294967296]",
            "[1,2,99999999999999999999999]",
            "[-1]",
            "[1.5,2]",
            "[1e3]",
            "[[1,2],[-7]]",
            "[[1],[4294967296]]",
        ];
        for ids in odd {
            let body = format!(r#"{{"model":"{MODEL}","prompt":{ids}}}"#);
            let answer = stack.send(Call::post(COMPLETIONS, body.clone())).await?;
            let receipt = answer.receipt();
            let said = (answer.status, receipt.outcome.as_str(), receipt.reason.as_str());
            assert_eq!(said, (200, "load_only", "token_out_of_range"), "{ids}");
            let received = stack.recorders[0].take();
            assert_eq!(received.len(), 1, "{ids}");
            assert_eq!(received[0].body, body, "{ids}");
        }
        // Ids beyond the vocabulary are the engine's to refuse.
        let unknown = stack.send(completion(json!([[4_294_967_295_u32, 0]]))).await?;
        assert_eq!((unknown.status, unknown.receipt().reason.as_str()), (200, "no_events"));
        let metrics = stack.indexer()?.metrics().await?;
        let counted = metrics.sum("warmpath_decisions_total", &[("reason", "token_out_of_range")]);
        assert_eq!(counted, odd.len() as f64);
        Ok(())
    });
}

// A9 (sgl-project/sglang#9875)
#[test]
fn calls_without_content_or_arguments_are_scored() {
    let call = |arguments: Value| json!({ "id": "1", "type": "function", "function": { "name": "w", "arguments": arguments } });
    let talk = |seed, assistant: Value| {
        json!([
            { "role": "user", "content": text(seed, 100) },
            assistant,
            { "role": "tool", "tool_call_id": "1", "content": "rain" },
            { "role": "user", "content": "and tomorrow?" },
        ])
    };
    let assistants = [
        json!({ "role": "assistant", "content": null, "tool_calls": [call(json!("{}"))] }),
        json!({ "role": "assistant", "tool_calls": [call(json!(""))] }),
        json!({ "role": "assistant", "content": null, "tool_calls": null, "function_call": null, "refusal": null }),
        json!({ "role": "assistant", "content": null, "tool_calls": [] }),
    ];
    case(Stack::builder(), async |stack| {
        for (seed, assistant) in (1..).zip(assistants) {
            let answer = stack.send_alone(chat(talk(seed, assistant.clone()))).await?;
            let receipt = answer.receipt();
            let said = (answer.status, receipt.outcome.as_str());
            assert_eq!(said, (200, "scored"), "{assistant}: {receipt:?} {}", answer.text());
        }
        // Arguments that are null are refused by this engine's API; another may take them. Not our business.
        let refused = json!({ "role": "assistant", "content": null, "tool_calls": [call(Value::Null)] });
        let answer = stack.send_alone(chat(talk(9, refused))).await?;
        let receipt = answer.receipt();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(receipt.outcome == "scored" || receipt.reason == "bad_prompt", "{receipt:?}");
        Ok(())
    });
}

/// One recorder, and an indexer that always chooses it.
fn one_recorder() -> Result<StackBuilder> {
    Ok(Stack::builder()?.recorders(1).script(Script::Silence))
}

// A27 (vllm-project/vllm#36379)
#[test]
fn options_of_the_stream_have_no_effect_on_the_question() {
    case(one_recorder(), async |stack| {
        stack.scripted()?.play(Script::Rank(vec![(stack.recorders[0].address(), None)]));
        for path in [COMPLETIONS, CHAT] {
            let prompt = if path == CHAT {
                r#""messages":[{"role":"user","content":"hi"}]"#
            } else {
                r#""prompt":"hi""#
            };
            let mut questions = Vec::new();
            for options in [
                "",
                r#","stream_options":null"#,
                r#","stream_options":{}"#,
                r#","stream_options":"x""#,
                r#","stream_options":[]"#,
            ] {
                // As long as each other, so that nothing in the question differs for its length.
                let padding = " ".repeat(32 - options.len());
                let body = format!(r#"{{"model":"{MODEL}",{prompt},"stream":true{options}{padding}}}"#);
                let answer = stack.send(Call::post(path, body.clone())).await?;
                assert_eq!((answer.status, answer.receipt().outcome.as_str()), (200, "scored"), "{options}");
                assert_eq!(stack.recorders[0].take()[0].body, body);
                let mut asked = stack.scripted()?.take_asked();
                assert_eq!(asked.len(), 1, "{options}");
                let mut question = asked.remove(0);
                // The time that is left, and the set of endpoints known by then.
                (question.deadline_us, question.endpoints_version) = (0, 0);
                questions.push(question);
            }
            assert!(questions.iter().all(|question| *question == questions[0]), "{questions:?}");
        }
        Ok(())
    });
}
