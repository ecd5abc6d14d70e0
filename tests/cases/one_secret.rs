//! Indexers have one secret for their block keys, with a mirror and without one, whenever they come to know each other.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use warmpath_tests::case::case;
use warmpath_tests::client::Call;
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::ports::Port;
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::redis::Redis;
use warmpath_tests::stack::Stack;

/// Batches that an engine keeps to tell again, where it forgets.
const KEPT: u64 = 4;

/// What tells the secrets of these indexers apart.
async fn secrets(stack: &Stack, of: &[usize]) -> Result<BTreeSet<String>> {
    let mut checks = BTreeSet::new();
    for number in of {
        checks.insert(stack.indexers[*number].state().await?["index"]["secret_check"].to_string());
    }
    Ok(checks)
}

async fn come_to_one_secret(stack: &Stack) -> Result<()> {
    let all: Vec<usize> = (0..stack.indexers.len()).collect();
    eventually("all have one secret", async || {
        let seen = secrets(stack, &all).await?;
        let mut others = 0.0;
        for indexer in &stack.indexers {
            others += indexer.metrics().await?.sum("warmpath_peer_other_keys", &[]);
        }
        seen_if(seen.len() == 1 && others == 0.0, format!("{seen:?}, {others} peers with other ones"))
    })
    .await
}

/// Kills all and starts them again, each so long after the first.
async fn start_all_again(stack: &mut Stack, after_ms: &[u64]) -> Result<()> {
    for indexer in &mut stack.indexers {
        indexer.process().kill()?;
    }
    let mut begun = 0;
    for (indexer, after) in stack.indexers.iter_mut().zip(after_ms) {
        tokio::time::sleep(Duration::from_millis(after - begun)).await;
        begun = *after;
        indexer.launch_again()?;
    }
    for indexer in &mut stack.indexers {
        indexer.wait_until_ready().await?;
    }
    Ok(())
}

/// What a pick of one indexer will bring into a cache, the others expect there at once, without an event: so the second use
/// of a prefix goes where the first one went, whichever indexer is asked.
async fn expect_each_others_picks(stack: &Stack) -> Result<()> {
    let others = stack.indexers.len() as f64 - 1.0;
    for engine in &stack.engines {
        engine.faults(&json!({ "events": { "silent": true } })).await?;
    }
    for indexer in &stack.indexers {
        eventually("it is followed, and knows the size of the engines' blocks", async || {
            let followers = indexer.metrics().await?.sum("warmpath_peer_followers", &[]);
            let state = indexer.state().await?;
            let ranks = state["endpoints"].as_array().into_iter().flatten().map(|e| &e["ranks"][0]["stream"]);
            let guessed = ranks.clone().all(|stream| stream["block_size_guess"] == 16);
            seen_if(followers == others && guessed, format!("{followers} followers, {state}"))
        })
        .await?;
    }
    for prefix in 0..8 {
        let shared = text(prefix, 512);
        let first = stack.send_alone(completion(shared.clone() + &text(100 + prefix, 40))).await?;
        let second = completion(shared + &text(200 + prefix, 40));
        for indexer in &stack.indexers {
            let explain = Call::post("/explain?path=/v1/completions", second.body().clone());
            let receipt = stack.client.send(&indexer.admin_address(), explain).await?.json()?;
            let best = &receipt["candidates"][0];
            assert_eq!(
                (&best["endpoint"], &best["cached_tokens"]),
                (&json!(first.receipt().endpoint), &json!(512))
            );
        }
    }
    let mut heard = Vec::new();
    for indexer in &stack.indexers {
        heard.push(indexer.metrics().await?.sum("warmpath_peer_expected_blocks_total", &[]));
    }
    assert!(heard.iter().sum::<f64>() >= 8.0 * 34.0 * others, "{heard:?}");
    for engine in &stack.engines {
        engine.reset_prefix_cache().await?;
    }
    Ok(())
}

#[test]
fn indexers_with_one_mirror_expect_each_others_picks() {
    let port = Port::claim().expect("a port");
    let redis = port.to_string();
    let stack = Stack::builder().map(|stack| {
        stack.indexers(2).indexer(move |config| {
            config["mirror"] = json!({ "redis": redis, "interval_ms": 100, "timeout_ms": 300 });
        })
    });
    case(stack, async |stack| {
        let _redis = Redis::start(port, stack.dir()).await?;
        start_all_again(stack, &[0, 0]).await?;
        expect_each_others_picks(stack).await
    });
}

/// None of them has anything to give to another, and there is no mirror.
#[test]
fn indexers_that_start_together_have_one_secret_and_expect_each_others_picks() {
    case(Stack::builder().map(|stack| stack.indexers(3)), async |stack| {
        come_to_one_secret(stack).await?;
        for after_ms in [[0, 0, 0], [0, 20, 500], [0, 150, 300]] {
            start_all_again(stack, &after_ms).await?;
            come_to_one_secret(stack).await?;
        }
        expect_each_others_picks(stack).await
    });
}

/// The first two cannot know of each other until the third comes: each begins with a secret of its own, and one of them yields,
/// with all that it knew of engines which no longer tell it.
#[test]
fn indexers_that_come_to_know_each_other_late_come_to_one_secret_and_lose_nothing() {
    let stack = Stack::builder().map(|stack| {
        let stack = stack.indexers(3).indexer(|config| config["leases"] = json!({ "speculative_ms": 200 }));
        stack.each_engine(|engine| engine.flags.push(format!("--buffer-steps={KEPT}")))
    });
    case(stack, async |stack| {
        let third = json!([stack.indexers[2].grpc_address()]);
        for indexer in &mut stack.indexers {
            indexer.process().kill()?;
        }
        for indexer in &mut stack.indexers[..2] {
            let peers = third.clone();
            indexer.configure(|config| config["peers"] = peers);
            indexer.start_again().await?;
        }
        assert_eq!(secrets(stack, &[0, 1]).await?.len(), 2, "they do not know of each other");
        for seed in 0..4 * KEPT {
            let answer = stack.send(completion(text(seed, 320))).await?;
            assert_eq!(answer.status, 200);
        }
        stack.indexers[2].start_again().await?;
        come_to_one_secret(stack).await?;
        let mut taken = 0.0;
        for indexer in &stack.indexers {
            taken += indexer.metrics().await?.sum("warmpath_peer_secrets_taken_total", &[]);
        }
        assert!(taken >= 1.0, "{taken}");
        eventually("each knows all that the engines hold", async || {
            let mut known = Vec::new();
            for indexer in &stack.indexers {
                known.push(streams(&indexer.state().await?));
            }
            let is_whole = |streams: &Vec<(bool, u64)>| {
                let blocks: u64 = streams.iter().map(|(_, blocks)| blocks).sum();
                streams.iter().all(|(is_live, _)| *is_live) && blocks >= 4 * KEPT * 20
            };
            let is_whole = known.iter().all(is_whole) && known.iter().all(|streams| *streams == known[0]);
            seen_if(is_whole, format!("{known:?}"))
        })
        .await?;
        for seed in [0, 4 * KEPT - 1] {
            let second = completion(text(seed, 320) + &text(99, 64));
            for indexer in &stack.indexers {
                let explain = Call::post("/explain?path=/v1/completions", second.body().clone());
                let receipt = stack.client.send(&indexer.admin_address(), explain).await?.json()?;
                assert_eq!(receipt["reachable_tokens"], 320, "{receipt:#}");
            }
        }
        Ok(())
    });
}

/// Whether each stream is live, and the blocks known of it.
fn streams(state: &Value) -> Vec<(bool, u64)> {
    let ranks = state["endpoints"].as_array().into_iter().flatten().map(|e| &e["ranks"][0]["stream"]);
    ranks.map(|stream| (stream["trust"] == "live", stream["blocks"].as_u64().unwrap_or(0))).collect()
}
