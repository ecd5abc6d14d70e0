//! How bodies are read: every shape that engines take, long ones, and members that stand there twice.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use warmpath_proto::v1::ScoreRequest;
use warmpath_proto::v1::score_request::Prompt;
use warmpath_tests::case::case;
use warmpath_tests::client::Call;
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::scripted::Script;
use warmpath_tests::stack::Stack;

/// Longest time for a prompt of 120,000 tokens that is cached but for its end: decision, engine and all, on a busy
/// machine with hardly optimised code.
const LONG_PROMPT_BUDGET: Duration = Duration::from_secs(30);

// A2 (kubernetes-sigs/gateway-api-inference-extension#2721)
#[test]
fn all_four_shapes_of_a_prompt_are_scored_by_their_first() {
    case(Stack::builder(), async |stack| {
        let (first, second) = (text(1, 256), text(2, 64));
        let ids = stack.engines[0].tokenize(&first).await?;
        let home = stack.send_alone(completion(first.clone())).await?.receipt().endpoint;
        let shapes: [(&str, Value); 4] = [
            ("text", json!(first)),
            ("texts", json!([first, second])),
            ("ids", json!(ids)),
            ("lists of ids", json!([ids, [1, 2, 3]])),
        ];
        for (shape, prompt) in shapes {
            let answer = stack.send_alone(completion(prompt)).await?;
            let receipt = answer.receipt();
            assert_eq!(
                (answer.status, receipt.outcome.as_str()),
                (200, "scored"),
                "{shape}: {}",
                answer.text()
            );
            assert_eq!((&receipt.endpoint, receipt.prompt_tokens), (&home, Some(256)), "{shape}");
            assert_eq!(receipt.cached_tokens, Some(240), "{shape}");
        }
        for short in [json!("a"), json!(["a", "b"]), json!([1, 2, 3]), json!([[1, 2], [3]])] {
            assert_eq!(stack.send_alone(completion(short.clone())).await?.status, 200, "{short}");
        }
        Ok(())
    });
}

// A12 (kubernetes-sigs/gateway-api-inference-extension#854)
#[test]
fn a_prompt_of_120_000_tokens_is_scored_in_time() {
    let stack = Stack::builder().map(|stack| {
        let stack = stack.each_engine(|engine| {
            engine.blocks = 16_384;
            engine.prefill_tokens_per_second = 1_000_000;
        });
        stack.filter(|filter| filter["indexer"]["timeout_ms"] = 10_000.into())
    });
    case(stack, async |stack| {
        let prompt = text(1, 120_000);
        let first = stack.send_alone(completion(prompt.clone())).await?;
        assert_eq!(
            (first.status, first.receipt().outcome.as_str()),
            (200, "scored"),
            "{:?}",
            first.receipt()
        );
        let again = stack.send_alone(completion(prompt + &text(2, 100))).await?;
        assert_eq!(again.receipt().outcome, "scored");
        assert_eq!(again.receipt().endpoint, first.receipt().endpoint);
        assert_eq!(again.receipt().cached_tokens, Some(120_000));
        assert_eq!(again.usage()?.cached_tokens, Some(120_000));
        assert!(again.total < LONG_PROMPT_BUDGET, "{:?}", again.total);
        println!("a prompt of 120,000 tokens, all but the last 100 cached: {:?} in all", again.total);
        Ok(())
    });
}

/// Sends a body to a recorder and returns what the indexer was asked about it.
async fn asked(stack: &Stack, body: &str) -> Result<ScoreRequest> {
    let answer = stack.send(Call::post("/v1/completions", body.to_owned())).await?;
    assert_eq!(answer.status, 200, "{body}");
    assert_eq!(stack.recorders[0].take()[0].body, body);
    let mut asked = stack.scripted()?.take_asked();
    assert_eq!(asked.len(), 1, "{body}");
    Ok(asked.remove(0))
}

// A22 (ENTERPILOT/GoModel#870)
#[test]
fn of_a_member_that_stands_twice_the_last_counts_as_in_the_engine() {
    let stack = Stack::builder().map(|stack| stack.recorders(1).script(Script::Silence));
    case(stack, async |stack| {
        stack.scripted()?.play(Script::Rank(vec![(stack.recorders[0].address(), None)]));
        let twice = [
            r#"{"model":"evil","prompt":"no","cache_salt":"no","model":"good","prompt":"yes","cache_salt":"salt"}"#,
            // The same keys with letters escaped.
            r#"{"m\u006fdel":"evil","pro\u006dpt":"no","cache\u005fsalt":"no","model":"good","prompt":"yes","cache_salt":"salt"}"#,
            r#"{"model":"evil","prompt":"no","cache_salt":"no","m\u006fdel":"good","\u0070rompt":"yes","cache\u005Fsalt":"salt"}"#,
            // What stands deeper is none of these members.
            r#"{"model":"good","prompt":"yes","cache_salt":"salt","x":{"model":"evil","prompt":"no","cache_salt":"no"}}"#,
        ];
        for body in twice {
            let asked = asked(stack, body).await?;
            assert_eq!((asked.model.as_str(), asked.cache_salt.as_str()), ("good", "salt"), "{body}");
            let Some(Prompt::Texts(texts)) = asked.prompt else { panic!("{body}: {:?}", asked.prompt) };
            assert_eq!(texts.texts, ["yes"], "{body}");
        }
        Ok(())
    });
}

// A22 (ENTERPILOT/GoModel#870)
#[test]
fn of_messages_that_stand_twice_the_last_count_as_in_the_engine() {
    let stack = Stack::builder().map(|stack| stack.recorders(1).script(Script::Silence));
    case(stack, async |stack| {
        stack.scripted()?.play(Script::Rank(vec![(stack.recorders[0].address(), None)]));
        let body = r#"{"model":"m","messages":[{"role":"user","content":"no"}],"messages":[{"role":"user","role":"user","content":"yes"}]}"#;
        stack.send(Call::post("/v1/chat/completions", body)).await?;
        let asked = stack.scripted()?.take_asked();
        let Some(Prompt::Chat(chat)) = &asked[0].prompt else { panic!("{asked:?}") };
        let messages = String::from_utf8(chat.messages_json.clone())?;
        assert!(messages.contains("yes") && !messages.contains("no\""), "{messages}");
        Ok(())
    });
}

#[test]
fn tenants_with_different_salts_share_no_prefix() {
    case(Stack::builder().map(|stack| stack.engines(1)), async |stack| {
        let prompt = text(1, 256);
        let salted = |salt: &str| {
            let body = json!({ "model": "qwen3", "prompt": prompt, "max_tokens": 1, "cache_salt": salt });
            Call::json("/v1/completions", &body)
        };
        for (salt, expected) in [("a", 0), ("b", 0), ("a", 240), ("b", 240)] {
            let answer = stack.send_alone(salted(salt)).await?;
            assert_eq!(answer.receipt().cached_tokens, Some(expected), "{salt}");
            assert_eq!(answer.usage()?.cached_tokens.unwrap_or(0), expected, "{salt}");
        }
        assert_eq!(stack.send_alone(completion(prompt.clone())).await?.receipt().cached_tokens, Some(0));
        Ok(())
    });
}
