//! The emulator against recordings of real servers: fed the recorded tokens through its pure core, it must publish the
//! same events in the same order and find the same hits, step by step. Only hash values may differ. What it cannot
//! reproduce is listed in [`exceptions`], exactly: an entry that is not needed fails as well.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

mod capture;
mod events;
mod exceptions;
mod replica;

use std::path::{Path, PathBuf};

use capture::{Action, Step};
use engine_emulator::VllmVersion;
use replica::Replica;

/// One recorded server: its version, its pool and the scenarios that it went through, in order.
struct Recording {
    folder: &'static str,
    scenarios: &'static [&'static str],
    block_size: usize,
    blocks: usize,
    byte_hashes: bool,
}

const fn recording(folder: &'static str, scenarios: &'static [&'static str]) -> Recording {
    Recording { folder, scenarios, block_size: 32, blocks: 256, byte_hashes: false }
}

const fn halved(recording: Recording) -> Recording {
    Recording { block_size: 16, blocks: 2 * recording.blocks, ..recording }
}

const fn small(recording: Recording) -> Recording {
    Recording { blocks: 48, ..recording }
}

const fn bytes(recording: Recording) -> Recording {
    Recording { byte_hashes: true, ..recording }
}

const RECORDINGS: [Recording; 23] = [
    halved(recording("vllm-0.16.0/qwen3", &["requests"])),
    recording("vllm-0.16.0/llama31", &["requests"]),
    halved(small(recording("vllm-0.16.0/scen", &["reset", "evict", "replay"]))),
    halved(recording("vllm-0.16.0/restart", &["restart"])),
    halved(recording("vllm-0.16.0/two-default", &["tworeplicas"])),
    halved(bytes(recording("vllm-0.16.0/two-cbor-bytes-seed0", &["tworeplicas"]))),
    halved(bytes(recording("vllm-0.16.0/lora-bytes", &["lora"]))),
    recording("vllm-0.23.0/qwen3", &["requests"]),
    recording("vllm-0.23.0/llama31", &["requests"]),
    small(recording("vllm-0.23.0/scen", &["reset", "evict", "replay"])),
    recording("vllm-0.23.0/restart", &["restart"]),
    recording("vllm-0.23.0/two-default", &["tworeplicas"]),
    bytes(recording("vllm-0.23.0/two-cbor-bytes-seed0", &["tworeplicas"])),
    bytes(recording("vllm-0.23.0/lora-bytes", &["lora"])),
    recording("vllm-0.32.0/qwen3", &["requests"]),
    recording("vllm-0.32.0/llama31", &["requests"]),
    small(recording("vllm-0.32.0/scen", &["reset", "evict", "concurrent", "replay"])),
    recording("vllm-0.32.0/restart", &["restart"]),
    recording("vllm-0.32.0/two-default", &["tworeplicas"]),
    bytes(recording("vllm-0.32.0/two-cbor-bytes-seed0", &["tworeplicas"])),
    bytes(recording("vllm-0.32.0/lora-bytes", &["lora"])),
    recording("vllm-0.32.0/session", &["session"]),
    recording("vllm-0.32.0/embeds", &["embeds"]),
];

/// Hybrid models and data parallelism.
const MORE: [Recording; 2] = [
    Recording { blocks: 80, ..recording("vllm-0.32.0/hybrid", &["hybrid"]) },
    recording("vllm-0.32.0/dp2", &["dp"]),
];

#[test]
fn same_events_and_hits_as_recorded_servers() {
    let mut compared = 0;
    let mut differences = Vec::new();
    for recording in RECORDINGS.iter().chain(&MORE) {
        compared += compare(recording, &mut differences);
    }
    let found: Vec<(String, String)> =
        differences.iter().map(|d| (d.scenario.clone(), d.step.clone())).collect();
    let listed = exceptions::listed();
    for difference in &differences {
        let key = (difference.scenario.clone(), difference.step.clone());
        assert!(listed.contains(&key), "not listed: {} {}: {}", key.0, key.1, difference.what);
    }
    for key in &listed {
        assert!(found.contains(key), "listed, but the emulator reproduces it now: {key:?}");
    }
    assert!(compared > 400, "only {compared} steps compared");
}

/// A step that does not come out as recorded.
struct Difference {
    scenario: String,
    step: String,
    what: String,
}

/// Runs one recording; the number of steps compared.
fn compare(recording: &Recording, differences: &mut Vec<Difference>) -> usize {
    let folder = captures().join(recording.folder);
    let version = recording.folder.split(['-', '/']).nth(1).unwrap();
    let version: VllmVersion = version.parse().unwrap();
    let new = || -> Vec<Replica> { (0..2).map(|rank| Replica::new(recording, version, rank)).collect() };
    let mut replicas = new();
    let mut compared = 0;
    for scenario in recording.scenarios {
        for step in capture::steps(&folder.join(scenario)) {
            if matches!(step.action, Action::Restart) {
                replicas = new();
            }
            compared += 1;
            if let Err(what) = replay(&mut replicas, &step) {
                let scenario = format!("{}/{scenario}", recording.folder);
                differences.push(Difference { scenario, step: step.name, what });
            }
        }
    }
    compared
}

/// Does one step on the emulated replicas and compares.
fn replay(replicas: &mut [Replica], step: &Step) -> Result<(), String> {
    let before: Vec<_> = replicas.iter().map(Replica::counters).collect();
    match &step.action {
        Action::Serve { replica, requests } => replicas[*replica].serve(requests),
        Action::Stagger(groups) => replicas[0].serve_staggered(groups),
        Action::Reset { times } => (0..*times).for_each(|_| replicas[0].reset()),
        Action::ResetUnder(request) => replicas[0].reset_under(request, step.messages[0].len()),
        Action::Nothing | Action::Restart => replicas.iter_mut().for_each(Replica::run),
        Action::NotFed => return Err("tokens not recorded".to_owned()),
    }
    let mut found = (0, 0);
    let mut preemptions = 0;
    for (replica, before) in replicas.iter().zip(&before) {
        found.0 += replica.counters().prefix_hits - before.prefix_hits;
        found.1 += replica.counters().prefix_queries - before.prefix_queries;
        preemptions += replica.counters().preemptions - before.preemptions;
    }
    for (replica, recorded) in replicas.iter_mut().zip(&step.messages) {
        replica.compare(recorded)?;
    }
    if let Some(recorded) = step.preemptions.filter(|recorded| *recorded != preemptions) {
        return Err(format!("recorded {recorded} preemptions, emulated {preemptions}"));
    }
    match (step.hits, step.queries) {
        (Some(hits), Some(queries)) if (hits, queries) != found => {
            Err(format!("recorded {hits} of {queries} tokens hit, emulated {} of {}", found.0, found.1))
        }
        _ => Ok(()),
    }
}

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures")
}
