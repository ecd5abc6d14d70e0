//! What indexers keep in Redis: a fresh one knows what engines no longer tell, nothing of a dead engine comes back, and
//! no request ever waits for Redis.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use warmpath_tests::audit::audit;
use warmpath_tests::case::{case, fresh_dir, print_logs};
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::mirror_load::{Plan, run};
use warmpath_tests::paths;
use warmpath_tests::ports::Port;
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::redis::{Keeps, Redis};
use warmpath_tests::stack::{Stack, StackBuilder};

/// Batches that the engines' replay keeps: fewer than the cases make.
const KEPT: usize = 4;

/// Engines that forget what they told, and an indexer with a mirror on this port.
fn stack(engines: usize, redis: &Port) -> Result<StackBuilder> {
    let address = redis.to_string();
    Ok(forgetful(engines)?.indexer(move |config| {
        config["mirror"] = json!({ "redis": address, "interval_ms": 100, "timeout_ms": 300 });
    }))
}

/// Engines that forget what they told.
fn forgetful(engines: usize) -> Result<StackBuilder> {
    Ok(Stack::builder()?
        .engines(engines)
        .each_engine(|engine| engine.flags.push(format!("--buffer-steps={KEPT}")))
        .indexer(|config| config["leases"] = json!({ "speculative_ms": 200 })))
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

/// Two indexers and no Redis. One is killed, and its replay would bring back little.
#[test]
fn an_indexer_without_redis_starts_from_a_peer_with_all_that_engines_hold() {
    case(forgetful(2).map(|stack| stack.indexers(2)), async |stack| {
        let prompts: Vec<String> = (0..4 * KEPT as u64).map(|seed| text(seed, 160)).collect();
        for prompt in &prompts {
            predicted_and_true(stack, prompt, 0).await?;
        }
        stack.wait_for_events().await?;
        for round in 1..=2 {
            stack.indexer()?.process().kill()?;
            stack.indexer()?.start_again().await?;
            assert_eq!(trust(stack).await?, ["live", "live"], "whole, and ready only now");
            let metrics = stack.indexer()?.metrics().await?;
            assert_eq!(metrics.sum("warmpath_peer_images_taken_total", &[]), 2.0);
            assert_eq!(
                metrics.sum("warmpath_kv_resumed_total", &[]),
                2.0,
                "each engine showed its last batch"
            );
            let given = stack.indexers[1].metrics().await?.sum("warmpath_peer_images_given_total", &[]);
            assert_eq!(given, f64::from(2 * round));
            let audited = audit(&stack.engines, &stack.indexers).await?;
            assert_eq!(audited.len(), 4);
            assert!(audited.iter().all(|line| line.contains(" 0 missing, 0 phantom")), "{audited:?}");
        }
        for prompt in &prompts {
            predicted_and_true(stack, prompt, 144).await?;
        }

        // What a dead engine held does not come back by a peer either.
        stack.indexer()?.process().kill()?;
        stack.engines[0].restart().await?;
        stack.indexer()?.start_again().await?;
        let resumed = stack.indexer()?.metrics().await?.sum("warmpath_kv_resumed_total", &[]);
        assert_eq!(resumed, 1.0, "only of the engine that lives");
        for seed in 100..108 {
            predicted_and_true(stack, &text(seed, 160), 0).await?;
        }
        // Both have told something by now; the audit fails where anything that is not there is believed.
        let audited = audit(&stack.engines, &stack.indexers).await?;
        assert_eq!(audited.len(), 4);
        Ok(())
    });
}

/// Redis that takes nothing: full, a replica, somebody else's. Told with the reason, and no answer changes.
#[test]
fn a_redis_that_takes_nothing_is_told_with_its_reason_and_changes_no_answer() {
    let port = Port::claim().expect("a port");
    let builder = stack(1, &port);
    case(builder, async |stack| {
        let redis = Redis::start(port, stack.dir()).await?;
        let mut seed = 0;
        let mut decided = async |stack: &mut Stack| {
            for _ in 0..3 {
                seed += 1;
                let prompt = text(seed, 160);
                predicted_and_true(stack, &prompt, 0).await?;
                predicted_and_true(stack, &prompt, 144).await?;
            }
            anyhow::Ok(())
        };
        decided(stack).await?;
        saved(stack).await?;
        let broken: [(&str, &[&str], &[&str]); 3] = [
            ("full", &["config", "set", "maxmemory", "1"], &["config", "set", "maxmemory", "0"]),
            ("read_only", &["replicaof", "127.0.0.1", "1"], &["replicaof", "no", "one"]),
            ("foreign", &["set", "{warmpath}:streams", "something else"], &["del", "{warmpath}:streams"]),
        ];
        for (reason, breaks, mends) in broken {
            redis.ask(breaks)?;
            decided(stack).await?;
            eventually("the indexer tells why", async || {
                let metrics = stack.indexer()?.metrics().await?;
                let told = metrics.sum("warmpath_mirror_errors_total", &[("reason", reason)]);
                let reachable = metrics.sum("warmpath_mirror_reachable", &[]);
                seen_if(told > 0.0 && reachable == 0.0, format!("{told} {reason}"))
            })
            .await?;
            if reason == "full" {
                eventually("the log says what to look at", async || {
                    let log = stack.indexer()?.process().log();
                    seen_if(log.contains("raise Redis' maxmemory"), log)
                })
                .await?;
            }
            redis.ask(mends)?;
            saved(stack).await?;
        }
        Ok(())
    });
}

/// A Redis that keeps something on a disk without room takes nothing more: told with its reason. What it has can be read, so
/// an indexer that starts meanwhile is warm. It takes images again when there is room.
#[test]
fn a_redis_whose_snapshots_find_no_room_is_told_and_read_and_used_again_when_there_is_room() {
    a_full_disk_is_told_and_read_and_used_again(Keeps::Snapshots);
}

#[test]
fn a_redis_whose_log_finds_no_room_is_told_and_read_and_used_again_when_there_is_room() {
    a_full_disk_is_told_and_read_and_used_again(Keeps::Log);
}

fn a_full_disk_is_told_and_read_and_used_again(keeps: Keeps) {
    let port = Port::claim().expect("a port");
    let builder = stack(1, &port);
    case(builder, async |stack| {
        let redis = Redis::start_on_machine(keeps, port, stack.dir()).await?;
        let prompts: Vec<String> = (0..3 * KEPT as u64).map(|seed| text(seed, 160)).collect();
        for prompt in &prompts {
            predicted_and_true(stack, prompt, 0).await?;
        }
        saved(stack).await?;
        redis.fill_disk(true)?;
        let mut seed = 100;
        eventually("the indexer tells why", async || {
            seed += 1;
            stack.send_alone(completion(text(seed, 32))).await?;
            let metrics = stack.indexer()?.metrics().await?;
            let told = metrics.sum("warmpath_mirror_errors_total", &[("reason", "disk")]);
            let reachable = metrics.sum("warmpath_mirror_reachable", &[]);
            seen_if(told > 0.0 && reachable == 0.0, format!("{told} told, {reachable} reachable"))
        })
        .await?;
        eventually("the log says what to look at", async || {
            let log = stack.indexer()?.process().log();
            seen_if(log.contains("look at the disk of Redis"), log)
        })
        .await?;

        stack.indexer()?.process().kill()?;
        stack.indexer()?.start_again().await?;
        assert_eq!(metric(stack, "warmpath_mirror_restores_total", "restored").await?, 1.0);
        redis.fill_disk(false)?;
        saved(stack).await
    });
}

/// Streams that tell of many blocks while they are saved as often as may be: all of them are read, nothing is lost, and
/// images are saved. `make mirror-load` has the figures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_streams_are_followed_and_saved() {
    let dir = fresh_dir(&paths::target().join("e2e/mirror/busy_streams"));
    let plan = Plan {
        length: Duration::from_secs(4),
        rate: 20_000,
        streams: 3,
        blocks: 16,
        cache: 8_192,
        interval_ms: Some(1000),
    };
    let row = run(&plan, &dir).await;
    if row.is_err() {
        print_logs(&dir);
    }
    let row = row.unwrap();
    println!("{row:?}");
    let redis = row.redis.unwrap();
    assert!(redis.commands_per_second > 0.0 && redis.megabytes_per_second > 0.0, "{redis:?}");
}

/// A sequence of token ids as any of the encodings that a program might write them in.
fn encodings(ids: &[u32]) -> Vec<Vec<u8>> {
    let varint = |mut id: u32| {
        let mut bytes = Vec::new();
        while id >= 0x80 {
            bytes.push((id & 0x7f) as u8 | 0x80);
            id >>= 7;
        }
        bytes.push(id as u8);
        bytes
    };
    let of = |encode: &dyn Fn(u32) -> Vec<u8>| ids.iter().flat_map(|id| encode(*id)).collect::<Vec<u8>>();
    vec![
        of(&|id| id.to_le_bytes().to_vec()),
        of(&|id| id.to_be_bytes().to_vec()),
        of(&|id| u64::from(id).to_le_bytes().to_vec()),
        of(&|id| u64::from(id).to_be_bytes().to_vec()),
        of(&varint),
        // MessagePack, as engines write them.
        of(&|id| [&[0xcd], &(id as u16).to_be_bytes()[..]].concat()),
        of(&|id| format!("{id},").into_bytes()),
        of(&|id| format!("{id}, ").into_bytes()),
    ]
}

/// The answer to `mirror.tokens: false` of other designs: nothing that is written to Redis holds a prompt.
#[test]
fn no_token_and_no_text_of_a_prompt_reaches_redis() {
    let port = Port::claim().expect("a port");
    let builder = stack(1, &port);
    case(builder, async |stack| {
        let redis = Redis::start(port, stack.dir()).await?;
        let ids: Vec<u32> = (0..160).map(|number| 1_000 + number * 37).collect();
        let words = text(1, 160);
        stack.send_alone(completion(ids.clone())).await?;
        stack.send_alone(completion(words.clone())).await?;
        saved(stack).await?;
        let mut needles = encodings(&ids[40..44]);
        needles.extend(
            words.split_whitespace().filter(|word| word.len() > 6).map(|word| word.as_bytes().to_vec()),
        );
        assert!(needles.len() > 10, "{words}");
        let found = |redis: &Redis| {
            let everything = redis.everything()?;
            assert!(everything.iter().any(|(key, value)| key.contains(":image:") && value.len() > 200));
            let holds = |value: &[u8], needle: &[u8]| value.windows(needle.len()).any(|part| part == needle);
            let keys = everything.into_iter().filter(|(key, value)| {
                needles.iter().any(|needle| holds(value, needle) || holds(key.as_bytes(), needle))
            });
            anyhow::Ok(keys.map(|(key, _)| key).collect::<Vec<_>>())
        };
        assert_eq!(found(&redis)?, Vec::<String>::new());
        // What would be found, if there were any.
        redis.ask(&["set", "control", &String::from_utf8_lossy(&needles[6])])?;
        assert_eq!(found(&redis)?, ["control"]);
        Ok(())
    });
}
