//! An indexer that is gone, frozen or never there costs locality, and never a request or much time.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
use serde_json::json;
use warmpath_tests::case::{case, case_that_leaves};
use warmpath_tests::client::Call;
use warmpath_tests::eventually::{Look, eventually};
use warmpath_tests::load::figures::Figures;
use warmpath_tests::load::{Load, Sample};
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::stack::{AfterCase, MODEL, Stack, StackBuilder};

/// The deadline as it is shipped.
const DEADLINE_MS: u64 = 50;
/// Longest that a request may take here on a machine with much other work. Whoever waits for an indexer that is not there
/// waits longer; that most do not wait at all is told by their reasons.
const PATIENCE: Duration = Duration::from_secs(10);

fn shipped_deadline(stack: StackBuilder) -> StackBuilder {
    stack.filter(|filter| filter["indexer"]["timeout_ms"] = DEADLINE_MS.into())
}

/// A conversation-like load that is over in a few seconds.
fn load() -> Load {
    Load {
        prefixes: 40,
        prefix_tokens: 1024,
        uses: 6,
        own_tokens: (24, 40),
        output_tokens: 4,
        rate: 2.0,
        concurrency: 16,
        seed: 7,
    }
}

const SPEEDUP: f64 = 20.0;

fn engines_for_load() -> Result<StackBuilder> {
    Ok(Stack::builder()?
        .engines(3)
        .each_engine(|engine| engine.speedup = SPEEDUP)
        .filter(|filter| filter["report_interval_ms"] = Load::report_interval_ms(SPEEDUP).into()))
}

/// Drives the load; `meddle` is called with the number of answers so far, until it returns false.
async fn drive(
    stack: &mut Stack,
    mut meddle: impl FnMut(&mut Stack, usize) -> Result<bool>,
) -> Result<Vec<Sample>> {
    let done = Arc::new(AtomicUsize::new(0));
    let (client, address) = (stack.client.clone(), stack.envoy.address());
    let load = load();
    let driving = load.drive(&client, &address, SPEEDUP, &done);
    let meddling = async {
        while meddle(stack, done.load(Ordering::Relaxed))? {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    };
    let (samples, meddled) = tokio::join!(driving, meddling);
    meddled.and(samples)
}

// E1 (agentgateway/agentgateway#3473)
#[test]
fn an_indexer_that_dies_under_load_costs_no_request_and_little_locality() {
    case(engines_for_load(), async |stack| {
        let with = drive(stack, |_, _| Ok(false)).await?;
        for engine in &mut stack.engines {
            engine.restart().await?;
        }
        stack.indexer()?.stop()?;
        stack.indexer()?.start_again().await?;

        let killed_at = load().prefixes * load().uses / 4;
        let without = drive(stack, |stack, done| {
            if done < killed_at {
                return Ok(true);
            }
            stack.indexer()?.process().kill()?;
            Ok(false)
        })
        .await?;
        let fell_back = without.iter().filter(|sample| sample.outcome == "fallback").count();
        let (with, without) = (Figures::of(&with), Figures::of(&without));
        println!(
            "hit rate with the indexer {:.1} %, killed after a quarter of the load {:.1} % ({fell_back} requests by the fallback)",
            100.0 * with.cached_share,
            100.0 * without.cached_share,
        );
        assert_eq!((with.failed, without.failed), (0, 0));
        assert!(fell_back > without.requests / 2, "{fell_back} requests were decided by the fallback");
        // Where the ring prefers another engine, a beginning is computed once more: one in five of its hits. The rest is for
        // what the ring's bound on load moves. Without locality half of the hits are gone.
        assert!(without.cached_share > 0.75 * with.cached_share, "the fallback keeps the locality");

        stack.indexer()?.start_again().await?;
        let back = Instant::now();
        eventually("the indexer is asked again", async || {
            let receipt = stack.send(completion(text(99, 64))).await?.receipt();
            Ok(if receipt.outcome == "scored" {
                Look::Seen(())
            } else {
                Look::NotYet(format!("{receipt:?}"))
            })
        })
        .await?;
        println!("asked again after {:?}", back.elapsed());
        Ok(())
    });
}

// E1 (agentgateway/agentgateway#3473)
#[test]
fn without_any_indexer_bodies_arrive_whole_and_at_once() {
    let left = AfterCase { indexers_may_be_gone: true, ..AfterCase::default() };
    let stack = Stack::builder().map(|stack| shipped_deadline(stack.recorders(2)));
    case_that_leaves(left, stack, async |stack| {
        stack.indexer()?.process().kill()?;
        let mut waited = 0;
        for seed in 0..40 {
            let call = completion(text(seed, 200));
            let answer = stack.send(call.clone()).await?;
            assert_eq!(answer.status, 200);
            assert!(answer.total < PATIENCE, "{:?}", answer.total);
            waited += usize::from(answer.receipt().reason != "circuit_open");
            let received: Vec<_> = stack.recorders.iter().flat_map(|recorder| recorder.take()).collect();
            assert_eq!(received.len(), 1);
            assert_eq!(received[0].body, call.body());
        }
        // Each worker asks until it knows, and now and then for a trial.
        assert!(waited <= 20, "{waited} of 40 requests asked an indexer that is not there");
        Ok(())
    });
}

// E11 (Kuadrant/wasm-shim#425)
#[test]
fn a_cluster_without_an_indexer_is_given_up_at_once() {
    let stack = Stack::builder().map(|stack| shipped_deadline(stack.recorders(1).indexers(0)));
    case(stack, async |stack| {
        let mut reasons = Vec::new();
        for seed in 0..20 {
            let answer = stack.send(completion(text(seed, 50))).await?;
            assert_eq!(answer.status, 200);
            assert!(answer.total < PATIENCE, "{:?}", answer.total);
            reasons.push(answer.receipt().reason);
        }
        assert!(
            reasons.iter().all(|reason| reason == "unavailable" || reason == "circuit_open"),
            "{reasons:?}"
        );
        assert!(
            reasons.iter().any(|reason| reason == "circuit_open"),
            "nobody is asked for ever: {reasons:?}"
        );
        Ok(())
    });
}

#[test]
fn a_frozen_indexer_costs_the_deadline_once_or_twice_and_is_used_again_when_it_thaws() {
    let stack = Stack::builder().map(|stack| shipped_deadline(stack.recorders(2)));
    case(stack, async |stack| {
        // Until the indexer is warm, the shipped deadline may be too short for a busy machine.
        let usable = async |stack: &Stack| {
            let receipt = stack.send(completion(text(1, 100))).await?.receipt();
            let decided = receipt.outcome == "scored" || receipt.outcome == "load_only";
            Ok(if decided { Look::Seen(()) } else { Look::NotYet(format!("{receipt:?}")) })
        };
        eventually("the indexer decides", async || usable(stack).await).await?;
        stack.indexer()?.process().freeze()?;
        let mut reasons = Vec::new();
        for seed in 0..30 {
            let answer = stack.send(completion(text(seed, 100))).await?;
            assert_eq!(answer.status, 200);
            assert!(answer.total < PATIENCE, "{:?}", answer.total);
            reasons.push(answer.receipt().reason);
        }
        stack.indexer()?.process().thaw()?;
        let count = |name: &str| reasons.iter().filter(|reason| *reason == name).count();
        assert!(count("deadline") >= 1, "{reasons:?}");
        assert!(count("circuit_open") > count("deadline"), "{reasons:?}");
        eventually("the indexer decides again", async || usable(stack).await).await?;
        Ok(())
    });
}

// D14 (higress-group/higress#3407)
#[test]
fn a_dead_engine_costs_no_request() {
    case(Stack::builder().map(|stack| stack.engines(3)), async |stack| {
        let home = stack.send(completion(text(1, 320))).await?.receipt().endpoint;
        stack.engine_at(&home)?.process().kill()?;
        for _ in 0..10 {
            let answer = stack.send(completion(text(1, 320))).await?;
            assert_eq!(answer.status, 200);
            assert_ne!(answer.receipt().endpoint, home);
        }
        Ok(())
    });
}

/// `/dev/full` takes nothing, as a full disk does, and a pipe that nobody reads any more.
#[test]
fn an_indexer_whose_log_cannot_be_written_serves_on() {
    let stack =
        Stack::builder().map(|stack| stack.indexer(|config| config["log"] = json!({ "level": "debug" })));
    case(stack, async |stack| {
        let indexer = stack.indexer()?;
        indexer.stop()?;
        indexer.start_again_logging_to(Path::new("/dev/full")).await?;
        for seed in 0..10 {
            let answer = stack.send_alone(completion(text(seed, 64))).await?;
            assert_eq!(answer.receipt().outcome, "scored", "{:?}", answer.receipt());
        }
        // It also ends as it should: a panic on the way would show in its exit code.
        stack.indexer()?.stop()?;
        assert!(stack.indexer()?.process().exit_code() == Some(0));
        stack.indexer()?.start_again().await
    });
}

/// The same in the midst of it, for the indexer and for Envoy, until there is room again.
#[test]
fn an_indexer_and_a_proxy_whose_disk_fills_up_while_they_run_serve_on() {
    let stack = Stack::builder()
        .map(|stack| stack.own_machines().indexer(|config| config["log"] = json!({ "level": "debug" })));
    case(stack, async |stack| {
        let fill = |stack: &mut Stack, is_full: bool| {
            stack.indexer()?.process().fill_disk(is_full)?;
            stack.envoy.process().fill_disk(is_full)?;
            anyhow::Ok(stack.indexer()?.process().log().len())
        };
        let full = fill(stack, true)?;
        for seed in 0..20 {
            let answer = stack.send_alone(completion(text(seed, 64))).await?;
            assert_eq!(answer.receipt().outcome, "scored", "{:?}", answer.receipt());
        }
        assert_eq!(fill(stack, false)?, full, "no line of its log was written");
        eventually("lines are written again", async || {
            stack.send_alone(completion(text(1, 64))).await?;
            let now = stack.indexer()?.process().log().len();
            Ok(if now > full { Look::Seen(()) } else { Look::NotYet(format!("{now} bytes")) })
        })
        .await?;
        stack.indexer()?.stop()?;
        assert!(stack.indexer()?.process().exit_code() == Some(0));
        stack.indexer()?.start_again().await
    });
}

/// It is started where there is no room, as after a crash that filled the disk, and goes on when there is some.
#[test]
fn an_indexer_that_starts_on_a_full_disk_serves_and_writes_when_there_is_room() {
    let stack = Stack::builder()
        .map(|stack| stack.own_machines().indexer(|config| config["log"] = json!({ "level": "debug" })));
    case(stack, async |stack| {
        let indexer = stack.indexer()?;
        indexer.process().fill_disk(true)?;
        indexer.stop()?;
        let full = indexer.process().log().len();
        indexer.start_again().await?;
        for seed in 0..10 {
            let answer = stack.send_alone(completion(text(seed, 64))).await?;
            assert_eq!(answer.receipt().outcome, "scored", "{:?}", answer.receipt());
        }
        let lost = stack.indexers[0].metrics().await?.sum("warmpath_log_lines_lost_total", &[]);
        assert!(lost > 10.0, "{lost} lines are counted as lost");
        let indexer = stack.indexer()?;
        assert_eq!(indexer.process().log().len(), full, "no line of its log was written");
        indexer.process().fill_disk(false)?;
        eventually("lines are written again", async || {
            stack.send_alone(completion(text(1, 64))).await?;
            let now = stack.indexer()?.process().log().len();
            Ok(if now > full { Look::Seen(()) } else { Look::NotYet(format!("{now} bytes")) })
        })
        .await
    });
}

/// Its log goes into a pipe that somebody holds and does not read, as where the one who collects logs stands still: soon the pipe
/// is full, and to write to it would wait.
#[test]
fn an_indexer_whose_log_nobody_reads_serves_on() {
    let stack =
        Stack::builder().map(|stack| stack.indexer(|config| config["log"] = json!({ "level": "trace" })));
    case(stack, async |stack| {
        let pipe = stack.dir().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status()?.success());
        // For writing too: to open it does not wait then.
        let _held = File::options().read(true).write(true).open(&pipe)?;
        let indexer = stack.indexer()?;
        indexer.stop()?;
        indexer.start_again_logging_to(&pipe).await?;
        let mut seed = 0;
        eventually("lines are lost", async || {
            seed += 1;
            let answer = stack.send_alone(completion(text(seed, 64))).await?;
            assert_eq!(answer.receipt().outcome, "scored", "{:?}", answer.receipt());
            let lost = stack.indexers[0].metrics().await?.sum("warmpath_log_lines_lost_total", &[]);
            Ok(if lost > 0.0 { Look::Seen(()) } else { Look::NotYet(format!("{seed} requests")) })
        })
        .await?;
        stack.indexer()?.stop()?;
        assert!(stack.indexer()?.process().exit_code() == Some(0));
        stack.indexer()?.start_again().await
    });
}

#[test]
fn a_dead_engine_costs_no_request_while_no_indexer_answers() {
    let left = AfterCase { indexers_may_be_gone: true, ..AfterCase::default() };
    case_that_leaves(left, Stack::builder().map(|stack| stack.workers(1)), async |stack| {
        // From here on the worker knows both engines.
        assert_eq!(stack.send_alone(completion(text(1, 64))).await?.receipt().outcome, "scored");
        stack.indexer()?.process().kill()?;
        stack.engines[0].process().kill()?;
        // The one that is left has everything in flight, far above its share.
        let call = |seed| {
            let body = json!({ "model": MODEL, "prompt": text(seed, 64), "max_tokens": 100 });
            Call::json("/v1/completions", &body)
        };
        for _ in 0..3 {
            let answers = try_join_all((0..40).map(|seed| stack.send(call(seed)))).await?;
            let failed: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
            assert!(failed.is_empty(), "{} of 40: {:?}", failed.len(), failed[0]);
        }
        Ok(())
    });
}

#[test]
fn a_dead_engine_costs_no_request_that_envoy_balances_alone() {
    let stack = Stack::builder().map(|stack| stack.engines(3).indexers(0));
    case(stack, async |stack| {
        stack.engines[1].process().kill()?;
        // Before a health check can know; it has the fewest requests, so it is chosen often.
        let call = |seed| {
            let body = json!({ "model": MODEL, "prompt": text(seed, 64), "max_tokens": 100 });
            Call::json("/v1/completions", &body)
        };
        let answers = try_join_all((0..120).map(|seed| stack.send(call(seed)))).await?;
        let failed: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
        assert!(failed.is_empty(), "{} of 120: {:?}", failed.len(), failed[0]);
        Ok(())
    });
}
