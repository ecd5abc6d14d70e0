//! Payloads byte by byte against the ones that the struct definitions of 26 releases make of the same events.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::io::Read as _;

use engine_emulator::core::{Digest, ExtraKey, KvEvent, Lora, Stored};
use engine_emulator::{Encoder, HashForm, VllmVersion};
use serde_json::Value;

/// Time stamp of all recorded payloads.
const TS: f64 = 1_700_000_000.25;
/// Cases that the emulator never publishes: optional fields left out that the engine sets, and features that it lacks
/// (multimodal keys, window groups, offload tiers).
const NEVER_PUBLISHED: [&str; 3] = ["stored-root-no-optional", "stored-every-field", "removed-every-field"];

#[test]
fn payloads_equal_those_of_every_release() {
    let mut compared = 0;
    for release in recorded()["versions"].as_array().unwrap() {
        let version: VllmVersion = release["vllm"].as_str().unwrap().parse().unwrap();
        for (case, payload) in release["payload_hex"].as_object().unwrap() {
            if NEVER_PUBLISHED.contains(&case.as_str()) {
                continue;
            }
            let (events, form, rank) = produced(case);
            let ours = hex(&Encoder::new(version, form).payload(TS, &events, rank));
            assert_eq!(ours, payload.as_str().unwrap(), "{version} {case}");
            compared += 1;
        }
    }
    assert!(compared >= 26 * 5, "only {compared} payloads compared");
}

#[test]
fn every_field_is_known_to_the_release_that_has_it() {
    for release in recorded()["versions"].as_array().unwrap() {
        let version: VllmVersion = release["vllm"].as_str().unwrap().parse().unwrap();
        let fields = |name: &str| release[name].as_array().unwrap().len();
        assert_eq!(version.stored_fields(), fields("block_stored_fields"), "{version}");
        assert_eq!(version.removed_fields(), fields("block_removed_fields"), "{version}");
    }
}

/// The events of a recorded case, with the form of its hashes and its rank.
fn produced(case: &str) -> (Vec<KvEvent>, HashForm, Option<u32>) {
    let hashes = vec![digest(0x1122_3344_5566_7788), digest(0xffee_ddcc_bbaa_9988)];
    let removed = KvEvent::Removed(hashes.clone());
    let stored = Stored {
        hashes: hashes.clone(),
        parent: Some(digest(0x0102_0304_0506_0708)),
        tokens: vec![1, 2, 300, 70_000],
        block_size: 2,
        lora: None::<Lora>,
        extra_keys: vec![vec![ExtraKey::Salt("salt-a".into())], vec![]],
        session: None,
    };
    match case {
        "stored-int-hashes" => (vec![KvEvent::Stored(stored)], HashForm::Integers, Some(0)),
        "stored-bytes-hashes" => {
            let bytes = |from: u8| -> Digest { std::array::from_fn(|i| from + i as u8) };
            let stored = Stored { hashes: vec![bytes(0), bytes(32)], parent: Some(bytes(64)), ..stored };
            (vec![KvEvent::Stored(stored)], HashForm::Bytes, Some(0))
        }
        "removed" => (vec![removed], HashForm::Integers, Some(0)),
        "cleared" => (vec![KvEvent::Cleared], HashForm::Integers, Some(0)),
        "mixed" => (vec![removed, KvEvent::Stored(stored), KvEvent::Cleared], HashForm::Integers, Some(0)),
        "no-rank" => (vec![KvEvent::Cleared], HashForm::Integers, None),
        other => panic!("unknown case {other}"),
    }
}

fn digest(last: u64) -> Digest {
    let mut digest = [0xaa; 32];
    digest[24..].copy_from_slice(&last.to_be_bytes());
    digest
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn recorded() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/vllm-event-encodings.json.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}
