//! Several indexers, each asked for a part of the requests, spread load and keep locality like one.

use std::cell::RefCell;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use warmpath_tests::case::{case, case_that_leaves};
use warmpath_tests::eventually::{Look, eventually};
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
        prefixes: 160,
        prefix_tokens: 1024,
        uses: 1,
        own_tokens: (16, 32),
        output_tokens: 16,
        rate: 20.0,
        concurrency: 24,
        seed: 3,
    }
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

// D4 (llm-d/llm-d-router#1842)
#[test]
fn three_indexers_spread_load_as_evenly_as_one() {
    let figures = RefCell::new(Vec::new());
    for indexers in [1, 3] {
        case(engines(indexers), async |stack| {
            let uneven = unevenness(stack).await?;
            println!("busiest engine, {indexers} indexers: {uneven:.2} times the mean");
            figures.borrow_mut().push(uneven);
            Ok(())
        });
    }
    let figures = figures.into_inner();
    assert!(figures[1] <= UNEVENNESS_MAX * figures[0], "three: {}, one: {}", figures[1], figures[0]);
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
