//! Indexers come, go, and are replaced one after the other, under load and through real Envoy: no request fails, and
//! hardly any is decided without knowing loads and caches.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use warmpath_tests::audit::audit;
use warmpath_tests::case::{fresh_dir, print_logs};
use warmpath_tests::chaos::fault::Link;
use warmpath_tests::chaos::site::{Site, Size};
use warmpath_tests::chaos::toxic::Toxic;
use warmpath_tests::chaos::traffic::{Sent, Traffic};
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::paths;

/// Of requests that were decided without an indexer.
const BLIND_MAX: f64 = 0.01;
/// Long, so that a busy machine decides no case.
const TIMEOUT_MS: u64 = 2000;
/// Requests in a second.
const RATE: f64 = 40.0;

/// Runs the case on a site with so many indexers, and prints all logs where it fails.
fn on_site(name: &str, indexers: usize, case: impl AsyncFnOnce(&mut Site) -> Result<()>) {
    on_site_with(TIMEOUT_MS, name, indexers, case);
}

/// The same with another deadline.
fn on_site_with(
    timeout_ms: u64,
    name: &str,
    indexers: usize,
    case: impl AsyncFnOnce(&mut Site) -> Result<()>,
) {
    let dir = fresh_dir(&paths::target().join("e2e/scaling").join(name));
    let size = Size { indexers, engines: 3, timeout_ms: Some(timeout_ms), machines: None };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let result = runtime.block_on(async {
        let mut site = Site::start(size, &dir).await?;
        case(&mut site).await?;
        audit(&site.engines, &site.indexers).await.context("after the case").map(drop)
    });
    if let Err(error) = result {
        print_logs(&dir);
        panic!("{error:#}");
    }
}

/// Sends requests for so long, and meddles meanwhile.
async fn under_load(
    site: &mut Site,
    length: Duration,
    meddle: impl AsyncFnOnce(&mut Site) -> Result<()>,
) -> Result<Vec<Sent>> {
    let (client, address) = (site.client.clone(), site.envoy.address());
    let traffic = Traffic { rate: RATE, length, seed: 1 };
    let (sent, meddled) = tokio::join!(traffic.run(&client, &address, Instant::now()), meddle(site));
    meddled.and(sent)
}

/// No request failed. The share of those that nobody decided who knows loads and caches.
fn blind(sent: &[Sent]) -> Result<f64> {
    let failed: Vec<&Sent> = sent.iter().filter(|sent| sent.failure.is_some()).collect();
    ensure!(failed.is_empty(), "{} of {} requests failed: {failed:?}", failed.len(), sent.len());
    let blind: Vec<&str> =
        sent.iter().filter(|sent| sent.is_blind()).map(|sent| sent.reason.as_str()).collect();
    println!("{} requests, {} blind: {blind:?}", sent.len(), blind.len());
    Ok(blind.len() as f64 / sent.len() as f64)
}

// E4 (kubernetes-sigs/gateway-api-inference-extension#548), E32 (kubernetes-sigs/gateway-api-inference-extension#1406)
#[test]
fn a_rolling_restart_of_all_indexers_fails_nothing_and_blinds_hardly_any_decision() {
    on_site("rolling_restart", 3, async |site| {
        let sent = under_load(site, Duration::from_secs(15), async |site| {
            for number in 0..site.indexers.len() {
                site.indexers[number].stop()?;
                site.indexers[number].start_again().await?;
            }
            Ok(())
        })
        .await?;
        let blind = blind(&sent)?;
        ensure!(blind < BLIND_MAX, "{:.2} % of the decisions were blind", 100.0 * blind);
        Ok(())
    });
}

// E32 (kubernetes-sigs/gateway-api-inference-extension#1406)
#[test]
fn one_of_two_indexers_that_is_killed_costs_no_request_and_no_locality() {
    on_site("one_of_two", 2, async |site| {
        let hit_rate = |sent: &[Sent]| {
            let sum = |tokens: fn(&Sent) -> u64| sent.iter().map(tokens).sum::<u64>() as f64;
            sum(|sent| sent.cached_tokens) / sum(|sent| sent.prompt_tokens)
        };
        // Fills the caches.
        blind(&under_load(site, Duration::from_secs(4), async |_| Ok(())).await?)?;
        let with = under_load(site, Duration::from_secs(4), async |_| Ok(())).await?;
        let without =
            under_load(site, Duration::from_secs(4), async |site| site.indexers[1].process().kill()).await?;
        let blind = blind(&with)?.max(blind(&without)?);
        let (with, without) = (hit_rate(&with), hit_rate(&without));
        println!("hit rate with two {:.1} %, with one {:.1} %", 100.0 * with, 100.0 * without);
        ensure!(blind < BLIND_MAX, "{:.2} % of the decisions were blind", 100.0 * blind);
        ensure!(without > with - 0.03, "with two {with}, with one {without}");
        site.indexers[1].start_again().await
    });
}

// E4 (kubernetes-sigs/gateway-api-inference-extension#548)
#[test]
fn questions_that_are_on_their_way_to_indexers_that_end_are_answered() {
    on_site("drain", 3, async |site| {
        // Questions take a while, so that a hundred of them are on their way when the signal comes.
        for indexer in 0..site.indexers.len() {
            site.set(Link::Asking { indexer }, Some(Toxic::Latency { ms: 300 }));
        }
        let asked = async |site: &Site| -> Result<f64> {
            let metrics = site.envoy.metrics().await?;
            Ok(metrics.sum("envoy_cluster_upstream_rq_active", &[("envoy_cluster_name", "indexer")]))
        };
        let (client, address) = (site.client.clone(), site.envoy.address());
        let burst = Traffic { rate: 1000.0, length: Duration::from_millis(100), seed: 2 };
        let (sent, ended) = tokio::join!(burst.run(&client, &address, Instant::now()), async {
            eventually("most questions are on their way", async || {
                let asked = asked(site).await?;
                seen_if(asked >= 60.0, format!("{asked} questions"))
            })
            .await?;
            // Two of three, so that a question that may be asked thrice must be asked of each.
            site.indexers[0].process().ask_to_end()?;
            site.indexers[1].process().ask_to_end()
        });
        ended?;
        let blind = blind(&sent?)?;
        ensure!(blind == 0.0, "{:.2} % of the decisions were blind", 100.0 * blind);
        for ended in 0..2 {
            site.indexers[ended].stop()?;
            site.indexers[ended].start_again().await?;
        }
        Ok(())
    });
}

#[test]
fn one_of_three_indexers_that_is_frozen_is_soon_left_alone() {
    /// Every third question would be lost if it were asked on and on.
    const BLIND_OF_FROZEN_MAX: f64 = 0.2;
    on_site_with(200, "frozen", 3, async |site| {
        let sent = under_load(site, Duration::from_secs(6), async |site| {
            site.indexers[1].process().freeze()?;
            tokio::time::sleep(Duration::from_secs(6)).await;
            site.indexers[1].process().thaw()
        })
        .await?;
        let blind = blind(&sent)?;
        ensure!(
            blind > 0.0 && blind < BLIND_OF_FROZEN_MAX,
            "{:.1} % of the decisions were blind",
            100.0 * blind
        );
        Ok(())
    });
}

// E33 (proxy-wasm/proxy-wasm-rust-sdk#240)
#[test]
fn a_question_that_two_indexers_cannot_take_is_asked_of_the_third() {
    on_site("third", 3, async |site| {
        for indexer in [0, 2] {
            site.set(Link::Asking { indexer }, Some(Toxic::Cut));
        }
        let sent = under_load(site, Duration::from_secs(3), async |_| Ok(())).await?;
        ensure!(blind(&sent)? < BLIND_MAX, "blind with one of three indexers left");
        for indexer in [0, 2] {
            site.set(Link::Asking { indexer }, None);
        }
        site.wait_for_streams().await
    });
}

#[test]
fn an_indexer_that_is_added_under_load_is_warm_and_one_that_goes_is_not_missed() {
    on_site("out_and_in", 3, async |site| {
        // Envoy knows its address already, and nobody listens there.
        site.indexers[2].stop()?;
        blind(&under_load(site, Duration::from_secs(4), async |_| Ok(())).await?)?;
        let sent = under_load(site, Duration::from_secs(10), async |site| {
            let added = &mut site.indexers[2];
            added.start_again().await?;
            let connected = added.connected_streams().await?;
            ensure!(connected == site.engines.len(), "ready with {connected} streams");
            eventually("it decides by what engines hold", async || {
                let metrics = site.indexers[2].metrics().await?;
                let scored = metrics.sum("warmpath_decisions_total", &[("outcome", "scored")]);
                seen_if(scored >= 5.0, format!("{scored} decisions"))
            })
            .await?;
            site.indexers[2].stop()
        })
        .await?;
        let blind = blind(&sent)?;
        ensure!(blind < BLIND_MAX, "{:.2} % of the decisions were blind", 100.0 * blind);
        site.indexers[2].start_again().await
    });
}
