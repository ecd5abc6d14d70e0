//! Several models behind one gateway: each request is read with its own model's files, and none with another's.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use warmpath_tests::case::case;
use warmpath_tests::client::Call;
use warmpath_tests::model_folders::words;
use warmpath_tests::prompts::text;
use warmpath_tests::stack::{MODEL, Stack, StackBuilder};

const WORDS: &str = "words";

/// An engine with the default model, and one with a model whose vocabulary is another.
fn two_models(name: &str) -> Result<StackBuilder> {
    let folder = words(name)?;
    let of_engine = folder.clone();
    Ok(Stack::builder()?
        .without_speculation()
        .engine(1, |engine| {
            engine.model = WORDS.to_owned();
            engine.tokenizer = Some(of_engine);
        })
        .indexer(move |config| {
            let models = config["models"].as_array_mut().unwrap();
            models.push(json!({ "name": WORDS, "tokenizer_dir": folder, "aliases": ["w"] }));
        }))
}

fn completion_of(model: &str, prompt: impl Into<Value>) -> Call {
    Call::json("/v1/completions", &json!({ "model": model, "prompt": prompt.into(), "max_tokens": 2 }))
}

// B2 (vllm-project/production-stack#1052)
#[test]
fn each_model_is_read_with_its_own_tokenizer_and_an_unknown_one_with_none() {
    case(two_models("models_two"), async |stack| {
        // The same text in turns: one has a token more, which begins it.
        for cached in [0, 144] {
            for (model, number, tokens) in [(MODEL, 0, 160), (WORDS, 1, 161), ("w", 1, 161)] {
                let cached =
                    if model == "w" { 160 } else { cached + u64::from(model == WORDS && cached > 0) * 16 };
                let call = completion_of(model, text(1, 160));
                let receipt = if model == "w" {
                    // An alias of ours that the engine does not serve: what matters is how it is read.
                    stack.send_alone(call).await?.receipt()
                } else {
                    stack.send_predicted(call).await.context(model)?.receipt()
                };
                assert_eq!(receipt.endpoint, stack.engines[number].address(), "{model}");
                assert_eq!(
                    (receipt.prompt_tokens, receipt.cached_tokens),
                    (Some(tokens), Some(cached)),
                    "{model}"
                );
            }
        }
        let ids = stack.engines[1].tokenize(&text(1, 160)).await?;
        // Ids of one model are other words in the other: equal ids share nothing between models.
        let receipt = stack.send_predicted(completion_of(MODEL, ids)).await?.receipt();
        assert_eq!((receipt.endpoint, receipt.cached_tokens), (stack.engines[0].address(), Some(0)));
        let unknown = stack.send_alone(completion_of("somebody-elses", text(1, 160))).await?.receipt();
        assert_eq!((unknown.outcome.as_str(), unknown.reason.as_str()), ("load_only", "unknown_model"));
        Ok(())
    });
}
