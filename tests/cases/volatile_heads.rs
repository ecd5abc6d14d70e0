//! Prompts whose first lines change with every request: found, named, and otherwise left alone.

use anyhow::Result;
use serde_json::{Value, json};
use warmpath_tests::case::case;
use warmpath_tests::client::Call;
use warmpath_tests::prompts::{chat, completion, text};
use warmpath_tests::stack::{MODEL, Stack};

const REQUESTS: u64 = 50;

/// What changes with every request.
fn nonce(number: u64) -> String {
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bf0_3635)
}

/// What the indexer names, by its state and by its counter.
async fn named(stack: &mut Stack) -> Result<(Value, f64)> {
    let indexer = stack.indexer()?;
    let counted = indexer.metrics().await?.sum("warmpath_volatile_heads_total", &[("model", MODEL)]);
    Ok((indexer.state().await?["volatile_heads"].clone(), counted))
}

// B15 (waybarrios/vllm-mlx#277)
#[test]
fn a_nonce_in_the_first_line_is_named_with_its_place() {
    // As the template writes it: `<|im_start|>system`, a line break, and the beginning of the client's text.
    const OFFSET: usize = "<|im_start|>system\nsession ".len();
    case(Stack::builder(), async |stack| {
        for number in 0..REQUESTS {
            let system = format!("session {}\n{}", nonce(number), text(1, 600));
            let talk =
                json!([{ "role": "system", "content": system }, { "role": "user", "content": "go on" }]);
            let call = chat(talk);
            let answer = stack.send(call).await?;
            assert_eq!((answer.status, answer.receipt().outcome.as_str()), (200, "scored"));
        }
        let (heads, counted) = named(stack).await?;
        let expected =
            json!([{ "model": MODEL, "byte_offset": OFFSET, "span_bytes": 16, "prompts": REQUESTS - 1 }]);
        assert_eq!(heads, expected);
        assert_eq!(counted, (REQUESTS - 1) as f64);
        let log = stack.indexer()?.process().log();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("near their beginning")).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(&OFFSET.to_string()) && lines[0].contains(MODEL), "{}", lines[0]);
        let prompt = text(1, 600);
        let words: Vec<&str> = prompt.split_whitespace().take(3).collect();
        assert!(
            !log.contains(&words.join(" ")) && !log.contains(&nonce(33)),
            "no text of a prompt is logged"
        );
        Ok(())
    });
}

// B15 (waybarrios/vllm-mlx#277)
#[test]
fn prompts_that_honestly_differ_are_not_named() {
    case(Stack::builder(), async |stack| {
        for number in 0..REQUESTS {
            assert_eq!(stack.send(completion(text(2000 + number, 400))).await?.status, 200);
            // One system prompt, and a question of one's own.
            let talk = json!([
                { "role": "system", "content": text(1, 400) },
                { "role": "user", "content": text(1000 + number, 100) },
            ]);
            let call = Call::json(
                "/v1/chat/completions",
                &json!({ "model": MODEL, "messages": talk, "max_tokens": 2 }),
            );
            assert_eq!(stack.send(call).await?.status, 200);
        }
        assert_eq!(named(stack).await?, (json!([]), 0.0));
        Ok(())
    });
}
