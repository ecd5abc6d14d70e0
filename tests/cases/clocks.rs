//! Clocks that jump, and that disagree: an indexer's, an engine's, Envoy's, Redis'. Nobody's time of day decides anything.

use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use futures::future::try_join;
use serde_json::json;
use warmpath_tests::case::case;
use warmpath_tests::client::Call;
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::indexer::Indexer;
use warmpath_tests::ports::Port;
use warmpath_tests::process::Process;
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::redis::{Keeps, Redis};
use warmpath_tests::stack::Stack;

const HOUR_S: i64 = 3600;
const DAY_S: i64 = 24 * HOUR_S;
/// Each is set from where the one before left the clock, so jumps go both ways.
const CLOCKS_S: [i64; 7] = [5, -5, 600, -3 * HOUR_S, DAY_S, -DAY_S, 0];
/// Whoever waits by a clock that was set back by a day waits longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The processes whose clocks jump, each alone.
const PROCESSES: usize = 4;

fn process(stack: &mut Stack, number: usize) -> &mut Process {
    match number {
        0 => stack.indexers[0].process(),
        1 => stack.indexers[1].process(),
        2 => stack.engines[0].process(),
        _ => stack.envoy.process(),
    }
}

/// How far the newest receipt of the first indexer is ahead of the right time, in seconds.
async fn receipts_ahead_s(stack: &Stack) -> Result<i64> {
    let mut ahead = Vec::new();
    for indexer in &stack.indexers {
        let receipts = stack.client.send(&indexer.admin_address(), Call::get("/receipts?limit=1")).await?;
        let at_ms = receipts.json()?[0]["at_unix_ms"].as_i64();
        ahead
            .extend(at_ms.map(|at_ms| {
                at_ms / 1000 - UNIX_EPOCH.elapsed().unwrap_or_default().as_secs().cast_signed()
            }));
    }
    ahead.into_iter().max_by_key(|seconds| seconds.abs()).context("no receipts")
}

#[test]
fn clocks_that_jump_and_disagree_change_no_decision() {
    let stack = Stack::builder().map(|stack| stack.indexers(2).own_machines().without_speculation());
    case(stack, async |stack| {
        let mut seed = 0;
        for ahead_s in CLOCKS_S {
            for number in 0..PROCESSES {
                process(stack, number).set_clock(ahead_s)?;
                for _ in 0..2 {
                    seed += 1;
                    let prompt = text(seed, 160);
                    stack.send_predicted(completion(prompt.clone())).await?;
                    let again = stack.send_predicted(completion(prompt)).await?;
                    assert_eq!(again.receipt().cached_tokens, Some(144), "{number} is {ahead_s} s ahead");
                }
            }
            // They did jump: all but the second engine by as much.
            let receipts_s = receipts_ahead_s(stack).await?;
            assert!(
                (receipts_s - ahead_s).abs() < 60,
                "receipts are {receipts_s} s ahead, asked for {ahead_s}"
            );
        }
        Ok(())
    });
}

/// The lag of a stream, which is told by two clocks, is the only figure that shows it.
#[test]
fn an_engine_whose_clock_is_ahead_shows_in_its_lag_only() {
    case(Stack::builder().map(|stack| stack.engines(1).own_machines()), async |stack| {
        for ahead_s in [DAY_S, -DAY_S, 0] {
            stack.engines[0].process().set_clock(ahead_s)?;
            stack.send_alone(completion(text(ahead_s.unsigned_abs() + u64::from(ahead_s < 0), 160))).await?;
            eventually("the lag says how far the clocks are apart", async || {
                let lag_s = stack.indexers[0].metrics().await?.sum("warmpath_kv_lag_seconds", &[]);
                seen_if(
                    (lag_s + ahead_s as f64).abs() < 60.0,
                    format!("{lag_s} s, the engine is {ahead_s} s ahead"),
                )
            })
            .await?;
        }
        Ok(())
    });
}

/// A question is on its way to an indexer that does not answer, and Envoy's clock is set back by a day: the wait ends as soon
/// as it would have.
#[test]
fn a_deadline_ends_though_the_clock_of_the_proxy_is_set_back_meanwhile() {
    let stack = Stack::builder().map(|stack| stack.own_machines().workers(1));
    case(stack, async |stack| {
        stack.send_alone(completion(text(1, 64))).await?;
        for ahead_s in [DAY_S, 0, -DAY_S] {
            stack.indexers[0].process().freeze()?;
            let begun = Instant::now();
            let asked = async { stack.send(completion(text(2, 64))).await };
            let (envoy, admin) = (&stack.envoy, stack.envoy.admin_address());
            let jumps = async {
                eventually("the question is on its way", async || {
                    let pending = envoy.metrics().await?.sum("warmpath_filter_pending_requests", &[]);
                    seen_if(pending >= 1.0, format!("{pending} at {admin}"))
                })
                .await?;
                envoy.set_clock(ahead_s)
            };
            let (answer, ()) = try_join(asked, jumps).await?;
            assert_eq!(answer.status, 200);
            assert_eq!(answer.receipt().reason, "deadline", "{:?}", answer.receipt());
            assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
            stack.indexers[0].process().thaw()?;
            eventually("the indexer decides again", async || {
                let receipt = stack.send(completion(text(3, 64))).await?.receipt();
                seen_if(receipt.outcome == "scored", format!("{receipt:?}"))
            })
            .await?;
        }
        Ok(())
    });
}

/// The indexer waits to connect again to an engine that is gone, and its clock is set back by a day: it connects as soon as it
/// would have.
#[test]
fn an_engine_that_comes_back_is_followed_though_the_clock_of_the_indexer_is_set_back_meanwhile() {
    case(Stack::builder().map(|stack| stack.engines(1).own_machines()), async |stack| {
        for ahead_s in [DAY_S, 0, -DAY_S] {
            let (indexers, engines) = (&mut stack.indexers, &mut stack.engines);
            engines[0].process().kill()?;
            streams(&indexers[0], 0).await?;
            indexers[0].process().set_clock(ahead_s)?;
            engines[0].launch_again()?;
            engines[0].wait_until_healthy().await?;
            streams(&indexers[0], 1).await.with_context(|| format!("the clock is {ahead_s} s ahead"))?;
        }
        Ok(())
    });
}

/// Waits until the indexer is connected to so many streams.
async fn streams(indexer: &Indexer, count: usize) -> Result<()> {
    eventually(&format!("{count} streams are connected"), async || {
        let connected = indexer.connected_streams().await?;
        seen_if(connected == count, format!("{connected}"))
    })
    .await
}

/// By the clock of Redis images expire, and turns to save end. Set forward, all images are gone at once, those of idle
/// streams too; set back, the turns that were taken before would last for days.
#[test]
fn a_redis_whose_clock_jumps_has_every_image_again() {
    let port = Port::claim().expect("a port");
    let address = port.to_string();
    let stack = Stack::builder().map(|stack| {
        let flags = |engine: &mut warmpath_tests::engine::EngineSpec| {
            engine.flags.push("--buffer-steps=4".to_owned())
        };
        stack.engines(2).each_engine(flags).indexer(move |config| {
            config["mirror"] = json!({ "redis": address, "interval_ms": 100, "timeout_ms": 300 });
            config["leases"] = json!({ "speculative_ms": 200 });
        })
    });
    case(stack, async |stack| {
        let redis = Redis::start_on_machine(Keeps::Nothing, port, stack.dir()).await?;
        let prompts: Vec<String> = (0..12).map(|seed| text(seed, 160)).collect();
        for prompt in &prompts {
            stack.send_alone(completion(prompt.clone())).await?;
        }
        let mut seed = 100;
        for ahead_s in [0, 2 * DAY_S, 0, -2 * DAY_S, 0] {
            redis.set_clock(ahead_s)?;
            let context = || format!("the clock is {ahead_s} s ahead");
            images(&redis, stack).await.with_context(context)?;
            let before = saves(stack).await?;
            eventually("what changes is saved", async || {
                seed += 1;
                stack.send_alone(completion(text(seed, 64))).await?;
                let now = saves(stack).await?;
                seen_if(now > before, format!("{now} saves"))
            })
            .await
            .with_context(context)?;
        }
        stack.indexer()?.stop()?;
        stack.indexer()?.start_again().await?;
        for prompt in prompts {
            let answer = stack.send_alone(completion(prompt)).await?;
            assert_eq!(answer.receipt().cached_tokens, Some(144), "{:?}", answer.receipt());
            assert_eq!(answer.usage()?.cached_tokens, Some(144));
        }
        Ok(())
    });
}

async fn saves(stack: &Stack) -> Result<f64> {
    Ok(stack.indexers[0].metrics().await?.sum("warmpath_mirror_saves_total", &[("result", "saved")]))
}

/// Waits until Redis has an image of each engine's stream, though none of them changes.
async fn images(redis: &Redis, stack: &Stack) -> Result<()> {
    for engine in &stack.engines {
        let key = format!("{{warmpath}}:image:{}/0", engine.address());
        eventually("there is an image", async || {
            let there = redis.command(&format!("EXISTS {key}")).await?;
            seen_if(there == ":1", there)
        })
        .await?;
    }
    Ok(())
}
