//! What must hold when a schedule is over and everything is undone: nobody died, everybody answers, nothing is reserved,
//! the index is exact, nothing has grown, Redis has what a next indexer needs, and with that one starts and is exact too.
//! Clocks are set right only after the first comparison.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::MODEL;
use super::proc::Holdings;
use super::site::Site;
use crate::audit::{COMPARED, audit};
use crate::client::Call;
use crate::engine::Engine;
use crate::eventually::{Look, eventually, seen_if};
use crate::indexer::Indexer;

/// Lines a second that an indexer may log, with its links breaking all the time.
const LOG_LINES_PER_SECOND: u64 = 20;
/// And for its start, and for that of those that follow it.
const LOG_LINES_AT_LEAST: u64 = 400;

/// Some blocks.
const TOLD_TOKENS: u32 = 100;

/// What was seen.
#[derive(Debug)]
pub(super) struct Seen {
    /// What is wrong, in words.
    pub complaints: Vec<String>,
    /// What the audit compared, a line for each stream and indexer.
    pub audited: Vec<String>,
    /// What each indexer holds.
    pub holdings: Vec<Holdings>,
    /// Lines of each indexer's log.
    pub log_lines: Vec<u64>,
}

/// What each indexer holds.
pub(super) fn holdings(site: &mut Site) -> Result<Vec<Holdings>> {
    site.indexers.iter_mut().map(|indexer| Holdings::of(indexer.process().id())).collect()
}

/// Looks at everything. `first`: what indexers held when they were ready; the run took so many seconds.
pub(super) async fn check(site: &mut Site, first: &[Holdings], seconds: u64) -> Result<Seen> {
    let mut complaints = Vec::new();
    let mut complain = |result: Result<()>| complaints.extend(result.err().map(|error| format!("{error:#}")));
    complain(recovered(site).await);
    complain(idle(site).await);
    let mut audited = match audit_of_all(&site.engines, &site.indexers).await {
        Ok(lines) => lines,
        Err(error) => {
            complain(Err(error.context("audit")));
            Vec::new()
        }
    };
    complain(decides(site).await);
    complain(idle(site).await);

    let holdings = holdings(site)?;
    site.set_clocks_right()?;
    complain(mirrored(site).await);
    match started_from_mirror(site).await {
        Ok(lines) => audited.extend(lines),
        Err(error) => complain(Err(error.context("an indexer that was killed and started at the end"))),
    }
    for (number, (now, first)) in holdings.iter().zip(first).enumerate() {
        complaints.extend(now.leaks(first).into_iter().map(|leak| format!("indexer {number} holds {leak}")));
    }
    let mut log_lines = Vec::new();
    for indexer in &mut site.indexers {
        let process = indexer.process();
        let log = process.log();
        if log.contains("panicked") {
            complaints.push(format!("{} panicked", process.name()));
        }
        let lines = log.lines().count() as u64;
        if lines > LOG_LINES_AT_LEAST + LOG_LINES_PER_SECOND * seconds {
            complaints.push(format!("{} logged {lines} lines", process.name()));
        }
        log_lines.push(lines);
    }
    let envoy = site.envoy.process();
    let log = envoy.log();
    for words in ["panicked at", "Wasm VM failed", "Function: proxy_", "[critical]", "Segmentation fault"] {
        if log.contains(words) {
            complaints.push(format!("Envoy's log says `{words}`"));
        }
    }
    if !envoy.is_running() {
        complaints.push("Envoy has ended".to_owned());
    }
    Ok(Seen { complaints, audited, holdings, log_lines })
}

/// Everybody runs, answers, and is connected to everybody.
async fn recovered(site: &mut Site) -> Result<()> {
    for engine in &mut site.engines {
        engine.wait_until_healthy().await?;
        engine.faults(&json!({ "clear": true })).await?;
    }
    for indexer in &mut site.indexers {
        indexer.wait_until_ready().await?;
    }
    site.wait_for_streams().await?;
    // An engine tells of what became of its cache with its next step; one that was killed has something to tell then.
    let prompt: Vec<u32> = (0..TOLD_TOKENS).collect();
    for engine in &site.engines {
        let body = json!({ "model": MODEL, "prompt": prompt, "max_tokens": 1 });
        let answer = site.client.send(&engine.address(), Call::json("/v1/completions", &body)).await?;
        ensure!(answer.status == 200, "{} answers {}", engine.address(), answer.status);
    }
    Ok(())
}

/// No request runs, so nothing is reserved, here or for a peer.
async fn idle(site: &Site) -> Result<()> {
    for indexer in &site.indexers {
        eventually("nothing is reserved", async || {
            let reserved = indexer.state().await?["reservations"].as_u64().context("no reservations")?;
            seen_if(reserved == 0, format!("{reserved} reservations"))
        })
        .await?;
    }
    Ok(())
}

/// Requests are decided again, by every indexer.
async fn decides(site: &Site) -> Result<()> {
    let prompt: Vec<u32> = (0..320).collect();
    let body = json!({ "model": MODEL, "prompt": prompt, "max_tokens": 1 });
    let mut before = Vec::new();
    for indexer in &site.indexers {
        before.push(decisions(indexer).await?);
    }
    eventually("every indexer decides", async || {
        let answer = site.client.send(&site.envoy.address(), Call::json("/v1/completions", &body)).await?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
        let mut idle = Vec::new();
        for (number, (indexer, before)) in site.indexers.iter().zip(&before).enumerate() {
            if decisions(indexer).await? <= *before {
                idle.push(number);
            }
        }
        seen_if(idle.is_empty(), format!("{:?}, and indexers {idle:?} decide nothing", answer.receipt()))
    })
    .await
}

/// Every indexer can save, and every engine's stream is saved.
async fn mirrored(site: &Site) -> Result<()> {
    for (number, indexer) in site.indexers.iter().enumerate() {
        eventually("the mirror takes images", async || {
            let reachable = indexer.metrics().await?.sum("warmpath_mirror_reachable", &[]);
            seen_if(reachable == 1.0, format!("indexer {number} says {reachable}"))
        })
        .await?;
    }
    for engine in &site.engines {
        let key = format!("{{warmpath}}:image:{}/0", engine.address());
        eventually("every stream has an image", async || {
            let answer = site.redis.command(&format!("EXISTS {key}")).await?;
            seen_if(answer == ":1", format!("{key}: {answer}"))
        })
        .await?;
    }
    Ok(())
}

/// What is saved is enough to start from, and true. What was compared.
async fn started_from_mirror(site: &mut Site) -> Result<Vec<String>> {
    let Some(indexer) = site.indexers.first_mut() else { return Ok(Vec::new()) };
    indexer.process().kill()?;
    indexer.start_again().await?;
    site.wait_for_streams().await?;
    audit_of_all(&site.engines, &site.indexers[..1]).await
}

/// The audit, which has to compare something of every stream: an index that nobody can hold against its engine is not exact.
async fn audit_of_all(engines: &[Engine], indexers: &[Indexer]) -> Result<Vec<String>> {
    eventually("every stream is compared", async || {
        let lines = audit(engines, indexers).await?;
        let left: Vec<&String> = lines.iter().filter(|line| !line.contains(COMPARED)).collect();
        Ok(if left.is_empty() { Look::Seen(lines) } else { Look::NotYet(format!("{left:?}")) })
    })
    .await
}

async fn decisions(indexer: &Indexer) -> Result<f64> {
    Ok(indexer.metrics().await?.sum("warmpath_decisions_total", &[("outcome", "scored")]))
}
