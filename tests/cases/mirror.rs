//! What indexers keep in Redis: a fresh one knows what engines no longer tell, nothing of a dead engine comes back, and
//! no request ever waits for Redis.

use anyhow::{Context as _, Result};
use serde_json::json;
use warmpath_tests::case::case;
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::ports::Port;
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::redis::Redis;
use warmpath_tests::stack::{Stack, StackBuilder};

/// Batches that the engines' replay keeps: fewer than the cases make.
const KEPT: usize = 4;

/// Engines that forget what they told, and an indexer with a mirror on this port.
fn stack(engines: usize, redis: &Port) -> Result<StackBuilder> {
    let address = redis.to_string();
    Ok(Stack::builder()?
        .engines(engines)
        .each_engine(|engine| engine.flags.push(format!("--buffer-steps={KEPT}")))
        .indexer(move |config| {
            config["leases"] = json!({ "speculative_ms": 200 });
            config["mirror"] = json!({ "redis": address, "interval_ms": 100, "timeout_ms": 300 });
        }))
}

async fn metric(stack: &mut Stack, name: &str, result: &str) -> Result<f64> {
    Ok(stack.indexer()?.metrics().await?.sum(name, &[("result", result)]))
}

/// Waits until what the indexer knows now is saved: everything that came by now is in the second image from now on.
async fn saved(stack: &mut Stack) -> Result<()> {
    let before = metric(stack, "warmpath_mirror_saves_total", "saved").await?;
    // A stream is saved only where it changed.
    for seed in 0..stack.engines.len() {
        stack.send_alone(completion(text(9_000 + seed as u64, 32))).await?;
    }
    eventually("the indexer has saved", async || {
        let now = metric(stack, "warmpath_mirror_saves_total", "saved").await?;
        seen_if(now > before, format!("{now} saves"))
    })
    .await
}

/// Sends the prompt; prediction and truth must be the same.
async fn predicted_and_true(stack: &Stack, prompt: &str, cached: u64) -> Result<()> {
    let answer = stack.send_alone(completion(prompt.to_owned())).await?;
    assert_eq!(answer.receipt().cached_tokens, Some(cached), "predicted: {:?}", answer.receipt());
    assert_eq!(answer.usage()?.cached_tokens.unwrap_or(0), cached, "true");
    Ok(())
}

async fn trust(stack: &mut Stack) -> Result<Vec<String>> {
    let state = stack.indexer()?.state().await?;
    let endpoints = state["endpoints"].as_array().context("endpoints")?.clone();
    let ranks =
        endpoints.iter().flat_map(|endpoint| endpoint["ranks"].as_array().cloned().unwrap_or_default());
    Ok(ranks.map(|rank| rank["stream"]["trust"].as_str().unwrap_or_default().to_owned()).collect())
}

#[test]
fn an_indexer_that_was_killed_comes_back_with_all_that_engines_hold() {
    let port = Port::claim().expect("a port");
    let builder = stack(1, &port);
    case(builder, async |stack| {
        let mut redis = Redis::start(port, stack.dir()).await?;
        let prompts: Vec<String> = (0..3 * KEPT as u64).map(|seed| text(seed, 160)).collect();
        for prompt in &prompts {
            predicted_and_true(stack, prompt, 0).await?;
        }
        saved(stack).await?;
        stack.indexer()?.process().kill()?;
        stack.indexer()?.start_again().await?;
        assert_eq!(trust(stack).await?, ["live"], "whole, and ready only now");
        assert_eq!(metric(stack, "warmpath_mirror_restores_total", "restored").await?, 1.0);
        assert_eq!(stack.indexer()?.metrics().await?.sum("warmpath_kv_resumed_total", &[]), 1.0);
        for prompt in &prompts {
            predicted_and_true(stack, prompt, 144).await?;
        }

        // The same without a mirror: the engine cannot tell what it holds.
        redis.process().kill()?;
        stack.indexer()?.process().kill()?;
        stack.indexer()?.start_again().await?;
        assert_eq!(trust(stack).await?, ["degraded"]);
        Ok(())
    });
}

#[test]
fn what_a_dead_engine_held_does_not_come_back() {
    let port = Port::claim().expect("a port");
    let builder = stack(1, &port);
    case(builder, async |stack| {
        let _redis = Redis::start(port, stack.dir()).await?;
        let prompts: Vec<String> = (0..8).map(|seed| text(seed, 160)).collect();
        for prompt in &prompts {
            predicted_and_true(stack, prompt, 0).await?;
        }
        saved(stack).await?;
        stack.indexer()?.process().kill()?;
        stack.engines[0].restart().await?;
        stack.indexer()?.start_again().await?;
        for prompt in &prompts {
            predicted_and_true(stack, prompt, 0).await?;
        }
        assert_eq!(stack.indexer()?.metrics().await?.sum("warmpath_kv_resumed_total", &[]), 0.0);
        Ok(())
    });
}

#[test]
fn a_redis_that_hangs_dies_or_is_wiped_changes_no_answer() {
    let port = Port::claim().expect("a port");
    let builder = stack(2, &port);
    case(builder, async |stack| {
        let mut redis = Redis::start(port, stack.dir()).await?;
        let mut seed = 0;
        let mut decided = async |stack: &Stack| {
            for _ in 0..10 {
                seed += 1;
                let prompt = text(seed, 160);
                predicted_and_true(stack, &prompt, 0).await?;
                predicted_and_true(stack, &prompt, 144).await?;
            }
            anyhow::Ok(())
        };
        decided(stack).await?;
        saved(stack).await?;
        redis.process().freeze()?;
        decided(stack).await?;
        redis.process().thaw()?;
        redis.process().kill()?;
        decided(stack).await?;
        eventually("the indexer says that the mirror is gone", async || {
            let metrics = stack.indexer()?.metrics().await?;
            let reachable = metrics.sum("warmpath_mirror_reachable", &[]);
            seen_if(reachable == 0.0, reachable.to_string())
        })
        .await?;
        redis.start_again().await?;
        decided(stack).await?;
        saved(stack).await?;

        // What was saved after Redis had lost everything is enough to start from.
        stack.indexer()?.process().kill()?;
        stack.indexer()?.start_again().await?;
        assert_eq!(trust(stack).await?, ["live", "live"]);
        decided(stack).await
    });
}
