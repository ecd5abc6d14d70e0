//! Several models behind one gateway: each request is read with its own model's files, and none with another's.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use warmpath_tests::case::case;
use warmpath_tests::client::{Answer, Call};
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::model_folders::{TemplatePlace, with_template, words};
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

/// An engine with two adapters and one with the second of them only.
fn adapters() -> Result<StackBuilder> {
    Ok(Stack::builder()?
        .without_speculation()
        .engine(0, |engine| engine.loras = vec!["first".to_owned(), "second".to_owned()])
        .engine(1, |engine| engine.loras = vec!["second".to_owned()])
        .indexer(|config| config["scrape"]["identity_interval_ms"] = 200.into()))
}

/// Waits until the indexer knows what the engines serve beside the base model.
async fn adapters_are_known(stack: &mut Stack) -> Result<()> {
    let indexer = stack.indexer()?;
    eventually("the adapters are known", async || {
        let state = indexer.state().await?;
        let list = state["endpoints"].as_array().cloned().unwrap_or_default();
        let known = list.iter().map(|endpoint| endpoint["adapters"].as_array().map_or(0, Vec::len));
        seen_if(known.sum::<usize>() == 3, state.to_string())
    })
    .await
}

#[test]
fn adapters_share_nothing_and_are_asked_for_where_they_are() {
    case(adapters(), async |stack| {
        adapters_are_known(stack).await?;
        let prompt = text(1, 320);
        let only = stack.engines[0].address();
        // The same prompt, cached under one name, is new under the others.
        for (model, home) in [("first", Some(&only)), (MODEL, None), ("second", None)] {
            let first =
                stack.send_predicted(completion_of(model, prompt.clone())).await.context(model)?.receipt();
            assert_eq!(first.cached_tokens, Some(0), "{model}");
            assert!(home.is_none_or(|home| first.endpoint == *home), "{model}: {first:?}");
            let again =
                stack.send_predicted(completion_of(model, prompt.clone())).await.context(model)?.receipt();
            assert_eq!((again.endpoint, again.cached_tokens), (first.endpoint, Some(304)), "{model}");
        }
        // However busy its only engine is, nobody else is asked: it would say 404.
        let burst = (0..12).map(|seed| stack.send(completion_of("first", text(100 + seed, 320))));
        for answer in futures::future::try_join_all(burst).await? {
            assert_eq!((answer.status, answer.receipt().endpoint), (200, only.clone()), "{}", answer.text());
        }
        let nowhere = stack.send_alone(completion_of("third", prompt)).await?;
        assert_eq!((nowhere.status, nowhere.receipt().reason.as_str()), (404, "unknown_model"));
        Ok(())
    });
}

#[test]
fn models_are_reloaded_under_load_without_losing_a_request() {
    const RELOADS: usize = 3;
    case(two_models("models_reload"), async |stack| {
        let done = AtomicBool::new(false);
        let (client, address) = (stack.client.clone(), stack.envoy.address());
        let load = async {
            let mut answers = Vec::new();
            for seed in 0.. {
                let pair = [MODEL, WORDS]
                    .map(|model| client.send(&address, completion_of(model, text(seed % 7, 96))));
                answers.extend(futures::future::try_join_all(pair).await?);
                if done.load(Ordering::Relaxed) {
                    return Ok(answers);
                }
            }
            anyhow::bail!("the numbers are used up")
        };
        let indexer = stack.indexer()?;
        let reload = async {
            for number in 1..=RELOADS {
                indexer.process().hang_up()?;
                eventually("the models are reloaded", async || {
                    let applied = indexer
                        .metrics()
                        .await?
                        .sum("warmpath_config_reloads_total", &[("result", "applied")]);
                    seen_if(applied >= number as f64, format!("{applied} reloads"))
                })
                .await?;
            }
            done.store(true, Ordering::Relaxed);
            anyhow::Ok(())
        };
        let (answers, reloaded) = tokio::join!(load, reload);
        reloaded?;
        let answers: Vec<Answer> = answers?;
        assert!(answers.len() > 2 * RELOADS, "{} answers", answers.len());
        for answer in &answers {
            let receipt = answer.receipt();
            assert_eq!((answer.status, receipt.outcome.as_str()), (200, "scored"), "{receipt:?}");
        }
        // What was known before is known after: the index is not the models'.
        let again = stack.send_alone(completion_of(MODEL, text(1, 96))).await?;
        assert_eq!(again.receipt().cached_tokens, Some(80));
        Ok(())
    });
}

#[test]
fn an_engine_with_another_template_raises_the_alarm_once() {
    const OTHER: &str = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}";
    let stack = || -> Result<StackBuilder> {
        let folder = with_template("models_drift", Some(OTHER), TemplatePlace::Config)?;
        Ok(Stack::builder()?.engines(1).each_engine(move |engine| engine.tokenizer = Some(folder.clone())))
    };
    case(stack(), async |stack| {
        for seed in 0..80 {
            let talk = json!([{ "role": "user", "content": text(seed, 60) }]);
            let call = Call::json(
                "/v1/chat/completions",
                &json!({ "model": MODEL, "messages": talk, "max_tokens": 2 }),
            );
            assert_eq!(stack.send_alone(call).await?.status, 200);
        }
        let indexer = stack.indexer()?;
        let metrics = indexer.metrics().await?;
        assert_eq!(metrics.sum("warmpath_prompt_drift", &[("model", MODEL)]), 1.0);
        let log = indexer.process().log();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("drift")).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains(MODEL) && lines[0].contains("template"),
            "what to check is named: {}",
            lines[0]
        );
        Ok(())
    });
    // The same load with the engine's own template raises none.
    case(Stack::builder().map(|stack| stack.engines(1)), async |stack| {
        for seed in 0..80 {
            let talk = json!([{ "role": "user", "content": text(seed, 60) }]);
            let call = Call::json(
                "/v1/chat/completions",
                &json!({ "model": MODEL, "messages": talk, "max_tokens": 2 }),
            );
            assert_eq!(stack.send_alone(call).await?.status, 200);
        }
        let metrics = stack.indexer()?.metrics().await?;
        assert_eq!(metrics.sum("warmpath_prompt_drift", &[]), 0.0);
        Ok(())
    });
}
