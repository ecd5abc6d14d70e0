//! What engines answer, and what of it is read: nothing is asked for that the client did not ask for.

use serde_json::json;
use warmpath_tests::case::case;
use warmpath_tests::client::Call;
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::prompts::text;
use warmpath_tests::stack::{MODEL, Stack};

/// Requests whose cached tokens were held against the prediction, and those reported over.
async fn compared_and_ended(stack: &mut Stack) -> anyhow::Result<(f64, f64)> {
    let metrics = stack.indexer()?.metrics().await?;
    let ended = metrics.sum("warmpath_reports_total", &[("event", "end")]);
    Ok((metrics.sum("warmpath_predictions_total", &[]), ended))
}

// A26 (BerriAI/litellm#35290)
#[test]
fn an_answer_without_usage_is_delivered_and_counts_as_unknown() {
    case(Stack::builder().map(|stack| stack.engines(1)), async |stack| {
        let ask = |seed: u64, members: &str| {
            let prompt = text(seed, 64);
            Call::post(
                "/v1/completions",
                format!(r#"{{"model":"{MODEL}","prompt":"{prompt}","max_tokens":3,"stream":true{members}}}"#),
            )
        };
        // Without asking, no usage comes: nothing was added to the request, and its end is known all the same.
        for (seed, members) in (1..).zip(["", r#","stream_options":null"#, r#","stream_options":{}"#]) {
            let answer = stack.send_alone(ask(seed, members)).await?;
            assert_eq!((answer.status, answer.receipt().outcome.as_str()), (200, "scored"), "{members}");
            let events = answer.events()?;
            assert_eq!(events.len(), 3, "{members}: an event for each token and no more: {events:?}");
            assert!(events.iter().all(|event| event.get("usage").is_none()), "{members}: {events:?}");
        }
        assert_eq!(compared_and_ended(stack).await?, (0.0, 3.0));
        let answer = stack.send_alone(ask(9, r#","stream_options":{"include_usage":true}"#)).await?;
        assert!(answer.usage().is_ok());
        let counted = compared_and_ended(stack).await?;
        assert_eq!(counted, (1.0, 4.0));
        let failures =
            stack.indexer()?.metrics().await?.sum("warmpath_reports_total", &[("event", "unknown")]);
        assert_eq!(failures, 0.0);
        Ok(())
    });
}

// A26 (BerriAI/litellm#35290)
#[test]
fn an_engine_that_never_tells_its_cached_tokens_is_routed_to_as_any_other() {
    let stack = Stack::builder().map(|stack| {
        stack.each_engine(|engine| engine.flags = vec!["--no-prompt-tokens-details".to_owned()])
    });
    case(stack, async |stack| {
        let call = || {
            Call::json("/v1/completions", &json!({ "model": MODEL, "prompt": text(1, 320), "max_tokens": 2 }))
        };
        let first = stack.send_alone(call()).await?.receipt();
        let again = stack.send_alone(call()).await?;
        assert_eq!(again.receipt().endpoint, first.endpoint);
        assert_eq!(again.receipt().cached_tokens, Some(304));
        assert_eq!(again.usage()?.cached_tokens, None);
        eventually("both are over and none is held against the prediction", async || {
            let counted = compared_and_ended(stack).await?;
            seen_if(counted == (0.0, 2.0), format!("{counted:?}"))
        })
        .await
    });
}
