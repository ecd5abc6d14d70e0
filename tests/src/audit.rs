//! Compares what an indexer holds of each engine with the engine's own cache, block by block.
//!
//! In: `/blocks` of an indexer and `/emulator/state` of an engine, both at rest. Out: the differences, by cause; none where
//! the index is exact. Only a stream that claims to be exact must be: one that is `live`. One that is `degraded` may miss
//! blocks, and may hold none that the engine has not. What was not compared is told.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::client::{Call, Client};
use crate::engine::Engine;
use crate::eventually::{Look, eventually};
use crate::indexer::Indexer;

/// Who does not answer in this time is frozen or gone: there is nothing to compare.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Reasons for being `degraded` that pass by themselves, where the engine's replay answers.
const HEALS: [&str; 1] = ["replay_failed"];

/// Copies of one hash that the index counts: a limit that the README names.
const COUNTED_MAX: u64 = 255;

/// In a line of what was compared.
pub const COMPARED: &str = "blocks compared";

/// Hashes, each with its number of copies.
type Copies = BTreeMap<u64, u64>;

/// One stream of one engine, as one indexer holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Blocks that either side has.
    pub compared: usize,
    /// The engine has them, the index does not: hits that are not seen.
    pub missing: usize,
    /// The index has them, the engine does not: hits that are promised and do not come.
    pub phantom: usize,
    /// Both have them, but not as often.
    pub miscounted: usize,
    /// The engine has them more often than the index counts: no mistake, but a known limit.
    pub beyond_count: usize,
}

/// What there was to compare.
pub enum Found {
    /// All of it.
    Compared(Differences),
    /// The stream is `degraded` for this reason: blocks may be missing, and none may be there that the engine has not.
    Partly(Differences, String),
    /// Something is on its way.
    NotYet(String),
    /// Why there is nothing.
    Nothing(String),
}

/// Audits every engine at every indexer. Returns a line for each rank: what was compared, or why nothing was; an error
/// where something differs and stays so.
pub async fn audit(engines: &[Engine], indexers: &[Indexer]) -> Result<Vec<String>> {
    let client = Client::default();
    let mut lines = Vec::new();
    for indexer in indexers {
        for engine in engines.iter().filter(|engine| engine.streams().is_some()) {
            for rank in 0..engine.spec().ranks {
                let who = format!("rank {rank} of {} at {}", engine.address(), indexer.admin_address());
                let line = eventually(&format!("the index is exact for {who}"), async || {
                    Ok(match compare(&client, engine, rank.into(), indexer).await? {
                        Found::Compared(found) if found.is_none() => Look::Seen(found.to_string()),
                        Found::Partly(found, reason) if found.phantom == 0 && !HEALS.contains(&&*reason) => {
                            Look::Seen(format!("degraded, {reason}: {found}"))
                        }
                        Found::Partly(found, reason) => Look::NotYet(format!("degraded, {reason}: {found}")),
                        Found::Compared(found) => Look::NotYet(found.to_string()),
                        Found::NotYet(why) => Look::NotYet(why),
                        Found::Nothing(why) => Look::Seen(format!("not compared: {why}")),
                    })
                })
                .await?;
                lines.push(format!("{who}: {line}"));
            }
        }
    }
    Ok(lines)
}

/// Compares what the indexer holds of a rank with what the rank holds, now.
pub async fn compare(client: &Client, engine: &Engine, rank: usize, indexer: &Indexer) -> Result<Found> {
    let nothing = |why: &str| Ok(Found::Nothing(why.to_owned()));
    let Some(truth) = ask(client, &engine.address(), "/emulator/state").await else {
        return nothing("the engine does not answer");
    };
    let page = format!("/blocks?endpoint={}&rank={rank}", engine.address());
    let Some(held) = ask(client, &indexer.admin_address(), &page).await else {
        return nothing("the indexer does not answer, or does not know the engine");
    };
    let truth = &truth["ranks"][rank];
    let count = |name: &str| truth[name].as_u64().with_context(|| format!("no {name} in the engine's state"));
    if count("running")? + count("waiting")? > 0 {
        return Ok(Found::NotYet("the engine is busy".to_owned()));
    }
    if count("unpublished")? > 0 {
        return nothing("the engine's cache changed, and no batch has told of it yet");
    }
    let trust = held["trust"].as_str().context("no trust in the indexer's answer")?;
    match trust {
        "live" | "degraded" => {}
        "recovering" => return Ok(Found::NotYet("the stream is recovering".to_owned())),
        trust => return Ok(Found::Nothing(format!("the stream is {trust}"))),
    }
    let (there, index) = (copies(&truth["blocks"], "count")?, copies(&held["blocks"], "copies")?);
    let found = Differences::between(&there, &index);
    if trust == "live" {
        return Ok(Found::Compared(found));
    }
    let reason = reason(&indexer.state().await?, &engine.address(), rank);
    Ok(Found::Partly(found, reason))
}

/// Why the stream of a rank stands as it does.
fn reason(state: &Value, endpoint: &str, rank: usize) -> String {
    let endpoints = state["endpoints"].as_array().into_iter().flatten();
    let mut of_engine = endpoints.filter(|known| known["endpoint"] == endpoint);
    let reason = of_engine.next().and_then(|known| known["ranks"][rank]["stream"]["reason"].as_str());
    reason.unwrap_or_default().to_owned()
}

/// `None`: no answer in time, or none with the status 200.
async fn ask(client: &Client, address: &str, path: &str) -> Option<Value> {
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, client.send(address, Call::get(path))).await;
    answer.ok()?.ok().filter(|answer| answer.status == 200)?.json().ok()
}

fn copies(blocks: &Value, count: &str) -> Result<Copies> {
    let blocks = blocks.as_array().context("no blocks")?;
    let mut copies = Copies::new();
    for block in blocks {
        let both = block["hash"].as_u64().zip(block[count].as_u64());
        let (hash, count) = both.with_context(|| format!("no block: {block}"))?;
        ensure!(copies.insert(hash, count).is_none(), "the hash {hash} is listed twice");
    }
    Ok(copies)
}

// === impl Differences ===

impl Differences {
    fn between(engine: &Copies, index: &Copies) -> Self {
        let mut found = Self::default();
        for (hash, copies) in engine {
            match index.get(hash) {
                _ if *copies > COUNTED_MAX => found.beyond_count += 1,
                None => found.missing += 1,
                Some(held) if held != copies => found.miscounted += 1,
                Some(_) => {}
            }
        }
        found.phantom = index.keys().filter(|hash| !engine.contains_key(hash)).count();
        found.compared = engine.len() + found.phantom;
        found
    }

    /// The index is exact.
    pub fn is_none(&self) -> bool {
        self.missing + self.phantom + self.miscounted == 0
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { compared, missing, phantom, miscounted, beyond_count } = self;
        write!(f, "{compared} {COMPARED}, {missing} missing, {phantom} phantom, {miscounted} miscounted, ")?;
        write!(f, "{beyond_count} with more copies than are counted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_difference_is_told_apart() {
        let engine = Copies::from([(1, 1), (2, 2), (3, 1), (5, 1), (6, 256), (7, 255)]);
        let index = Copies::from([(1, 1), (2, 1), (4, 1), (5, 1), (6, 12), (7, 255)]);
        let found = Differences::between(&engine, &index);
        let expected = Differences { compared: 7, missing: 1, phantom: 1, miscounted: 1, beyond_count: 1 };
        assert_eq!(found, expected);
        assert!(!found.is_none() && Differences::between(&engine, &engine).is_none());
    }
}
