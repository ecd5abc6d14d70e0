//! Several indexers, each asked for a part of the requests, spread load and keep locality like one.

use std::cell::Cell;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use warmpath_tests::case::{case, case_that_leaves};
use warmpath_tests::client::Call;
use warmpath_tests::eventually::{Look, eventually, seen_if};
use warmpath_tests::load::Load;
use warmpath_tests::load::figures::Figures;
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::stack::{AfterCase, Stack, StackBuilder};

const ENGINES: usize = 4;
const SPEEDUP: f64 = 20.0;
/// How much more uneven three indexers may be than one: the busiest engine's share of the mean.
const UNEVENNESS_MAX: f64 = 1.2;

fn engines(indexers: usize) -> Result<StackBuilder> {
    let stack = Stack::builder()?.engines(ENGINES).indexers(indexers);
    Ok(stack
        .each_engine(|engine| engine.speedup = SPEEDUP)
        .filter(|filter| filter["report_interval_ms"] = Load::report_interval_ms(SPEEDUP).into()))
}

/// Prompts that share nothing, so that load alone decides, and more of them at once than one engine can take.
fn load() -> Load {
    Load {
        prefixes: 320,
        prefix_tokens: 1024,
        uses: 1,
        own_tokens: (16, 32),
        output_tokens: 16,
        rate: 20.0,
        concurrency: 24,
        seed: 3,
    }
}

async fn wait_until_all_follow_all(stack: &Stack) -> Result<()> {
    let others = stack.indexers.len() as f64 - 1.0;
    eventually("all follow all", async || {
        let mut followers = Vec::new();
        for indexer in &stack.indexers {
            followers.push(indexer.metrics().await?.sum("warmpath_peer_followers", &[]));
        }
        seen_if(followers.iter().all(|count| *count == others), format!("{followers:?}"))
    })
    .await
}

/// Requests of the busiest engine, divided by the mean.
async fn unevenness(stack: &mut Stack) -> Result<f64> {
    let address = stack.envoy.address();
    let samples = load().drive(&stack.client, &address, SPEEDUP, &Arc::default()).await?;
    let figures = Figures::of(&samples);
    ensure!(figures.failed == 0, "{} requests failed", figures.failed);
    let busiest = figures.requests_per_endpoint.values().max().context("no endpoint served any")?;
    Ok(*busiest as f64 * ENGINES as f64 / figures.requests as f64)
}

/// The same, of so many indexers.
fn unevenness_of(indexers: usize) -> f64 {
    let seen = Cell::new(0.0);
    case(engines(indexers), async |stack| {
        seen.set(unevenness(stack).await?);
        println!("busiest engine, {indexers} indexers: {:.2} times the mean", seen.get());
        Ok(())
    });
    seen.get()
}

/// What two of three measurements have to fulfil: where a busy machine makes words between indexers late, one is not like
/// the others.
fn two_of_three(measure: impl Fn() -> f64, is_fulfilled_by: impl Fn(f64) -> bool) {
    let (mut fulfilled, mut seen) = (0, Vec::new());
    while fulfilled < 2 {
        assert!(seen.len() - fulfilled < 2, "{seen:?}");
        seen.push(measure());
        fulfilled += usize::from(seen.last().copied().is_some_and(&is_fulfilled_by));
    }
}

// D4 (llm-d/llm-d-router#1842)
#[test]
fn three_indexers_spread_load_as_evenly_as_one() {
    let one = unevenness_of(1);
    two_of_three(|| unevenness_of(3), |three| three <= UNEVENNESS_MAX * one);
}

/// Of the share of prompt tokens that engines find, what may be missing with several indexers. Engines are [`SPEEDUP`] times as fast
/// as real ones and words between indexers are not, so first uses of a prefix meet more often than they do. Where indexers do not
/// tell each other the blocks that their picks will bring, 0.04 to 0.11 is missing.
const HITS_LESS_MAX: f64 = 0.04;

/// Each of n indexers is asked for an nth of the requests. Loads and caches that only it saw would be a whole fleet's to it, and
/// every threshold n times as high.
// D9 (smg-project/smg#1621)
#[test]
fn the_same_load_finds_as_much_in_caches_with_one_two_and_four_indexers() {
    let one = share_found_with(1);
    for indexers in [2, 4] {
        two_of_three(|| share_found_with(indexers), |share| share > one - HITS_LESS_MAX);
    }
}

/// Plays a load that uses each of 60 prefixes five times, and returns the share of prompt tokens that engines found.
fn share_found_with(indexers: usize) -> f64 {
    let load = Load { prefixes: 60, uses: 5, rate: 4.0, concurrency: 24, ..load() };
    let share = Cell::new(0.0);
    case(engines(indexers), async |stack| {
        wait_until_all_follow_all(stack).await?;
        let address = stack.envoy.address();
        let samples = load.drive(&stack.client, &address, SPEEDUP, &Arc::default()).await?;
        let seen = Figures::of(&samples);
        ensure!(seen.failed == 0, "{} requests failed", seen.failed);
        for (number, indexer) in stack.indexers.iter().enumerate() {
            let decided = indexer.metrics().await?.sum("warmpath_decisions_total", &[("outcome", "scored")]);
            ensure!(decided > 0.0, "indexer {number} of {indexers} decided nothing");
        }
        println!(
            "{indexers} indexers: {:.1} % of the tokens found, p99 {:.0} ms",
            100.0 * seen.cached_share,
            seen.ttft_ms.p99,
        );
        share.set(seen.cached_share);
        Ok(())
    });
    share.get()
}

// D4 (llm-d/llm-d-router#1842)
#[test]
fn indexers_that_lose_each_other_decide_alone() {
    let left = AfterCase { indexers_may_be_gone: true, ..AfterCase::default() };
    case_that_leaves(left, engines(3), async |stack| {
        stack.send_alone(completion(text(1, 320))).await?;
        stack.indexers[1].process().kill()?;
        stack.indexers[2].process().kill()?;
        eventually("the one that is left decides every request, and knows the prefix", async || {
            for turn in 0..12 {
                let answer = stack.send(completion(text(1, 320) + &text(10 + turn, 20))).await?;
                assert_eq!(answer.status, 200);
                let receipt = answer.receipt();
                if receipt.outcome != "scored" || receipt.cached_tokens < Some(320) {
                    return Ok(Look::NotYet(format!("turn {turn}: {receipt:?}")));
                }
            }
            Ok(Look::Seen(()))
        })
        .await
    });
}

/// Requests of the case about what is reported, and how many of them at once.
const REPORTED: u64 = 96;
const AT_ONCE: u64 = 6;

/// The receipts that an indexer has, all of them over.
async fn receipts(stack: &Stack, indexer: usize) -> Result<Vec<Value>> {
    let call = Call::get(&format!("/receipts?limit={REPORTED}"));
    let answer = stack.client.send(&stack.indexers[indexer].admin_address(), call).await?;
    Ok(answer.json()?.as_array().cloned().unwrap_or_default())
}

/// Envoy spreads questions and reports over the indexers, so most reports reach one that did not decide. Still every
/// decision's receipt tells how it ended, no token is missing from the evidence, and all learn the same speeds.
// D9
#[test]
fn what_is_reported_to_another_indexer_is_not_lost() {
    let stack = engines(3).map(|stack| stack.engine(0, |engine| engine.prefill_tokens_per_second /= 3));
    case(stack, async |stack| {
        wait_until_all_follow_all(stack).await?;
        let (mut prompt_tokens, mut cached_tokens) = (0, 0);
        for turn in 0..REPORTED / AT_ONCE {
            // Two uses of each beginning.
            let sent = (0..AT_ONCE).map(|number| {
                let shared = text(turn / 2 * AT_ONCE + number, 640);
                stack.send(completion(shared + &text(1000 + turn * AT_ONCE + number, 64)))
            });
            for answer in try_join_all(sent).await? {
                let usage = answer.usage()?;
                if let Some(cached) = usage.cached_tokens {
                    prompt_tokens += usage.prompt_tokens;
                    cached_tokens += cached;
                }
            }
        }
        let fates = async |wanted: &dyn Fn(&Value) -> bool| -> Result<usize> {
            let mut count = 0;
            for indexer in 0..stack.indexers.len() {
                count +=
                    receipts(stack, indexer).await?.iter().filter(|receipt| wanted(&receipt["fate"])).count();
            }
            Ok(count)
        };
        eventually("every decision's receipt tells its end", async || {
            let over = fates(&|fate| fate["is_over"] == true).await?;
            seen_if(over == REPORTED as usize, format!("{over} of {REPORTED} are over"))
        })
        .await?;
        let timed = fates(&|fate| fate["ttft_ms"].is_number() && fate["whole_ms"].is_number()).await?;
        assert_eq!(timed, REPORTED as usize);

        let mut metrics = Vec::new();
        for indexer in &stack.indexers {
            metrics.push(indexer.metrics().await?);
        }
        let all = |name: &str, labels: &[(&str, &str)]| -> f64 {
            metrics.iter().map(|metrics| metrics.sum(name, labels)).sum()
        };
        assert_eq!(all("warmpath_evidence_tokens_total", &[("kind", "prompt")]), prompt_tokens as f64);
        assert_eq!(all("warmpath_evidence_tokens_total", &[("kind", "delivered")]), cached_tokens as f64);
        assert_eq!(all("warmpath_endpoint_requests_total", &[("policy", "cost")]), REPORTED as f64);
        assert_eq!(all("warmpath_endpoint_requests_total", &[]), REPORTED as f64, "each is counted once");
        let passed_on = all("warmpath_peer_reports_total", &[("result", "passed_on")]);
        assert!(passed_on > 0.0, "no report reached another than the maker of its decision");
        assert_eq!(all("warmpath_peer_reports_total", &[("result", "taken")]), passed_on);
        // A first byte that its end overtakes on another way is the only thing that is lost.
        let timed = all("warmpath_ttft_seconds_count", &[]);
        assert!(timed >= REPORTED as f64 * 0.9, "{timed} of {REPORTED} times to first tokens");

        let slow = stack.engines[0].address();
        eventually("all take the slow engine for equally slow", async || {
            let mut learnt = Vec::new();
            for indexer in &stack.indexers {
                let metrics = indexer.metrics().await?;
                learnt.push(metrics.sum("warmpath_endpoint_slowness", &[("endpoint", &slow)]));
            }
            let (least, most) =
                (learnt.iter().copied().fold(9.0, f64::min), learnt.iter().copied().fold(0.0, f64::max));
            seen_if(least > 1.05 && most < least * 1.02, format!("{learnt:?}"))
        })
        .await
    });
}

/// What an operator or failures say of an endpoint to one indexer holds for all of them, and for one that comes back.
#[test]
fn what_one_indexer_knows_of_an_endpoint_all_know() {
    let stack = Stack::builder().map(|stack| stack.recorders(3).indexers(3));
    case(stack, async |stack| {
        let standing = async |stack: &Stack, host: &str, key: &str, wanted: Value| {
            eventually(&format!("{key} of {host} is {wanted} everywhere"), async || {
                let mut shown = Vec::new();
                for indexer in &stack.indexers {
                    let state = indexer.state().await?;
                    let endpoints = state["endpoints"].as_array().cloned().unwrap_or_default();
                    shown.extend(endpoints.iter().find(|e| e["endpoint"] == *host).map(|e| e[key].clone()));
                }
                seen_if(shown.iter().all(|value| *value == wanted), format!("{shown:?}"))
            })
            .await
        };
        stack.recorders[0].answer_with(500);
        let mut failed = 0;
        for number in 0..60 {
            failed +=
                usize::from(stack.send_alone(completion(text(10_000 + number, 300))).await?.status == 500);
        }
        // As of a single indexer: five in a row, and a probe now and then.
        assert!((1..=12).contains(&failed), "{failed} of 60 failed, a third is 20");

        let leaving = stack.recorders[1].address();
        let order = async |stack: &Stack, indexer: usize, path: &str| {
            let call = Call::post(&format!("{path}?endpoint={leaving}"), "");
            stack.client.send(&stack.indexers[indexer].admin_address(), call).await
        };
        assert_eq!(order(stack, 0, "/drain").await?.status, 200);
        standing(stack, &leaving, "draining", json!(true)).await?;
        stack.indexers[2].process().kill()?;
        stack.indexers[2].start_again().await?;
        standing(stack, &leaving, "draining", json!(true)).await?;
        assert_eq!(order(stack, 1, "/undrain").await?.status, 200);
        standing(stack, &leaving, "draining", json!(false)).await
    });
}
