//! What the indexer believes of an engine's cache stays what the engine has, whatever happens to engine and events.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::json;
use warmpath_tests::case::case;
use warmpath_tests::client::Answer;
use warmpath_tests::eventually::{Look, eventually, seen_if};
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::stack::{Stack, StackBuilder};

fn one_engine() -> Result<StackBuilder> {
    Ok(Stack::builder()?.engines(1).indexer(|config| config["leases"] = json!({ "speculative_ms": 200 })))
}

/// Sends the prompt; prediction and truth must be the same.
async fn predicted_and_true(stack: &Stack, prompt: &str, cached: u64) -> Result<Answer> {
    let answer = stack.send_alone(completion(prompt.to_owned())).await?;
    assert_eq!(answer.receipt().cached_tokens, Some(cached), "predicted: {:?}", answer.receipt());
    assert_eq!(answer.usage()?.cached_tokens.unwrap_or(0), cached, "true");
    Ok(answer)
}

/// Waits until the index holds this many blocks of engines, and none that are only expected.
async fn index_holds(stack: &mut Stack, blocks: u64) -> Result<()> {
    let indexer = stack.indexer()?;
    eventually(&format!("the index holds {blocks} blocks"), async || {
        let index = indexer.state().await?["index"].clone();
        seen_if(index["references"] == blocks && index["speculative_blocks"] == 0, index.to_string())
    })
    .await
}

// C1 (llm-d/llm-d-router#2853)
#[test]
fn an_engine_that_restarts_in_place_is_believed_to_be_empty() {
    case(one_engine(), async |stack| {
        let prompts: Vec<String> = (0..20).map(|seed| text(seed, 160)).collect();
        for prompt in &prompts {
            predicted_and_true(stack, prompt, 0).await?;
        }
        predicted_and_true(stack, &prompts[0], 144).await?;
        stack.engines[0].restart().await?;
        // The first message of the new engine, with a number that was used before.
        let first = stack.send_alone(completion(text(100, 160))).await?;
        assert_eq!(first.status, 200);
        index_holds(stack, 10).await?;
        for prompt in &prompts {
            predicted_and_true(stack, prompt, 0).await?;
        }
        predicted_and_true(stack, &prompts[0], 144).await?;
        let metrics = stack.indexer()?.metrics().await?;
        assert_eq!(metrics.sum("warmpath_index_removals_total", &[("cause", "restarted")]), 200.0);
        Ok(())
    });
}

// C2 (vllm-project/aibrix#2287)
#[test]
fn an_engine_whose_cache_is_reset_is_believed_to_be_empty() {
    case(one_engine(), async |stack| {
        let prompt = text(1, 320);
        predicted_and_true(stack, &prompt, 0).await?;
        predicted_and_true(stack, &prompt, 304).await?;
        stack.engines[0].reset_prefix_cache().await?;
        // An idle engine keeps the event until its next step: whatever comes next brings it.
        stack.send_alone(completion(text(2, 64))).await?;
        index_holds(stack, 4).await?;
        predicted_and_true(stack, &prompt, 0).await?;
        predicted_and_true(stack, &prompt, 304).await?;
        Ok(())
    });
}

// C2 (vllm-project/aibrix#2287)
#[test]
fn an_engine_that_sleeps_is_believed_to_be_empty() {
    case(one_engine(), async |stack| {
        let prompt = text(1, 320);
        predicted_and_true(stack, &prompt, 0).await?;
        predicted_and_true(stack, &prompt, 304).await?;
        stack.engines[0].sleep().await?;
        // It tells of nothing until its next step.
        index_holds(stack, 0).await?;
        stack.engines[0].wake_up().await?;
        predicted_and_true(stack, &prompt, 0).await?;
        predicted_and_true(stack, &prompt, 304).await?;
        Ok(())
    });
}

/// Two ranks, which publish on one socket, or where the engine alone says.
// C39 (smg-project/smg#1771)
#[test]
fn ranks_are_told_apart_on_one_socket_and_found_where_the_engine_says() {
    for (flags, ports) in [(vec!["--one-socket".to_owned()], "shared"), (Vec::new(), "engine")] {
        let stack = one_engine().map(|stack| {
            stack
                .each_engine(|engine| {
                    engine.ranks = 2;
                    engine.flags.clone_from(&flags);
                })
                .indexer(move |config| {
                    let endpoint = &mut config["endpoints"]["static"][0];
                    endpoint["rank_ports"] = json!(ports);
                    if ports == "engine" {
                        // Nothing but where the engine is.
                        *endpoint = json!({ "address": endpoint["address"], "rank_ports": ports });
                    }
                })
        });
        case(stack, async |stack| {
            eventually("both ranks are followed", async || {
                let state = stack.indexer()?.state().await?;
                let ranks = state["endpoints"][0]["ranks"].as_array().cloned().unwrap_or_default();
                let live = ranks.iter().filter(|rank| rank["stream"]["trust"] == "live").count();
                seen_if(live == 2, format!("{ranks:?}"))
            })
            .await?;
            let mut used = 0;
            // Which of two equals gets a prompt that nobody knows is chance.
            for seed in 0..60 {
                if seed >= 6 && used == 2 {
                    break;
                }
                predicted_and_true(stack, &text(seed, 160), 0).await?;
                predicted_and_true(stack, &text(seed, 160), 144).await?;
                let state = stack.indexer()?.state().await?;
                let ranks = state["endpoints"][0]["ranks"].as_array().cloned().unwrap_or_default();
                used = ranks.iter().filter(|rank| rank["stream"]["blocks"].as_u64() > Some(0)).count();
            }
            assert_eq!(used, 2, "both ranks hold something");
            let metrics = stack.indexer()?.metrics().await?;
            for counter in ["warmpath_kv_gaps_total", "warmpath_kv_batches_of_other_ranks_total"] {
                assert_eq!(metrics.sum(counter, &[]), 0.0, "{ports}: {counter}");
            }
            Ok(())
        });
    }
}

#[test]
fn events_that_were_lost_on_the_way_are_replayed() {
    case(one_engine(), async |stack| {
        predicted_and_true(stack, &text(0, 160), 0).await?;
        stack.engines[0].faults(&json!({ "events": { "drop": 3 } })).await?;
        for seed in 1..6 {
            stack.send_alone(completion(text(seed, 160))).await?;
        }
        index_holds(stack, 60).await?;
        for seed in 0..6 {
            predicted_and_true(stack, &text(seed, 160), 144).await?;
        }
        let metrics = stack.indexer()?.metrics().await?;
        assert!(metrics.sum("warmpath_kv_gaps_total", &[]) >= 1.0);
        assert!(metrics.sum("warmpath_kv_batches_replayed_total", &[]) >= 3.0);
        assert_eq!(metrics.sum("warmpath_kv_batches_lost_total", &[]), 0.0);
        Ok(())
    });
}

#[test]
fn an_indexer_that_starts_late_learns_what_engines_hold() {
    case(Stack::builder(), async |stack| {
        let mut homes = Vec::new();
        for seed in 0..6 {
            homes.push(stack.send_alone(completion(text(seed, 320))).await?.receipt().endpoint);
        }
        stack.indexer()?.stop()?;
        stack.indexer()?.start_again().await?;
        for (seed, home) in homes.iter().enumerate() {
            let prompt = text(seed as u64, 320);
            let answer = eventually("the new indexer decides and knows", async || {
                let answer = stack.send_alone(completion(prompt.clone())).await?;
                let receipt = answer.receipt();
                let knows = receipt.outcome == "scored" && receipt.cached_tokens == Some(304);
                Ok(if knows { Look::Seen(answer) } else { Look::NotYet(format!("{receipt:?}")) })
            })
            .await?;
            assert_eq!(&answer.receipt().endpoint, home);
            assert_eq!(answer.usage()?.cached_tokens, Some(304));
        }
        Ok(())
    });
}

#[test]
fn both_encodings_of_events_are_understood() {
    for version in ["0.16", "0.23", "0.32"] {
        let stack = one_engine()
            .map(|stack| stack.each_engine(move |engine| version.clone_into(&mut engine.vllm_version)));
        case(stack, async |stack| {
            predicted_and_true(stack, &text(1, 160), 0).await?;
            index_holds(stack, 10).await?;
            predicted_and_true(stack, &text(1, 160), 144).await?;
            Ok(())
        });
    }
}

// B4 (vllm-project/production-stack#1060)
#[test]
fn engines_of_two_versions_in_one_pool_are_both_known() {
    let stack = Stack::builder().map(|stack| {
        stack
            .without_speculation()
            .engine(0, |engine| engine.vllm_version = "0.16".to_owned())
            .engine(1, |engine| engine.vllm_version = "0.32".to_owned())
    });
    case(stack, async |stack| {
        let mut used = BTreeSet::new();
        // Which of two equals gets a prompt that nobody knows is chance.
        for seed in 0..60 {
            if seed >= 6 && used.len() == 2 {
                break;
            }
            let first = stack.send_predicted(completion(text(seed, 160))).await?.receipt();
            let again = stack.send_predicted(completion(text(seed, 160))).await?.receipt();
            assert_eq!((&again.endpoint, again.cached_tokens), (&first.endpoint, Some(144)));
            used.insert(again.endpoint);
        }
        assert_eq!(used.len(), 2, "both were used: {used:?}");
        let metrics = stack.indexer()?.metrics().await?;
        for endpoint in &used {
            let labels = [("endpoint", endpoint.as_str())];
            assert!(metrics.sum("warmpath_kv_events_total", &labels) >= 1.0, "{endpoint} told of its blocks");
            let unread = metrics.sum("warmpath_kv_batches_undecodable_total", &labels)
                + metrics.sum("warmpath_kv_events_skipped_total", &labels);
            assert_eq!(unread, 0.0, "{endpoint}");
        }
        Ok(())
    });
}

// B5 (LMCache/LMCache#1767)
#[test]
fn the_form_of_block_hashes_does_not_matter() {
    // Whole digests; the last eight bytes of one as an integer, which is above 2^63 for every second block.
    for flags in [vec!["--byte-hashes".to_owned()], Vec::new()] {
        let stack = one_engine().map(|stack| stack.each_engine(|engine| engine.flags.clone_from(&flags)));
        case(stack, async |stack| {
            for seed in 0..4 {
                predicted_and_true(stack, &text(seed, 320), 0).await?;
            }
            index_holds(stack, 80).await?;
            for seed in 0..4 {
                predicted_and_true(stack, &text(seed, 320), 304).await?;
            }
            Ok(())
        });
    }
}

// C21 (vllm-project/vllm#49537)
#[test]
fn a_prompt_shorter_than_a_large_block_finds_nothing_and_says_why() {
    let stack =
        one_engine().map(|stack| stack.without_speculation().each_engine(|engine| engine.block_size = 784));
    case(stack, async |stack| {
        stack.send_predicted(completion(text(1, 1600))).await?;
        let again = stack.send_predicted(completion(text(1, 1600))).await?.receipt();
        assert_eq!(again.cached_tokens, Some(1568));
        let short = stack.send_alone(completion(text(1, 500))).await?;
        let receipt = short.receipt();
        assert_eq!((receipt.outcome.as_str(), receipt.reason.as_str()), ("load_only", "below_block"));
        assert_eq!(short.usage()?.cached_tokens.unwrap_or(0), 0, "true");
        Ok(())
    });
}
