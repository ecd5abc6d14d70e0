//! Block hashes in recorded events of real vLLM servers, computed anew from the tokens.
#![cfg(test)]

#[path = "../src/hex.rs"]
mod hex;

use std::collections::HashMap;
use std::io::Read as _;

use serde::Deserialize;
use warmpath_kv::event::{RawExtra, Stored};
use warmpath_kv::native_hash::{
    NativeAlgorithm, NativeDigest, NativeHasher, NativeKey, NativeKeyForm, SEED_DEFAULT,
};
use warmpath_kv::{EngineHash, Event, decode_batch};

use hex::hex;

/// One line of a capture; see `fixtures/README.md`. Requests are not of interest here.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Scenario { scenario: String },
    Published { stream: u32, payload: String },
    Other {},
}

/// Of the adapter that the servers were started with. Another one was loaded while they ran, from a path not recorded.
const ADAPTER_PATH: &str = "models/tiny-lora";

#[test]
fn all_hashes_of_vllm_0_32_are_computed_but_those_of_an_adapter_whose_path_is_not_known() {
    let capture = include_bytes!("fixtures/captures/vllm-0.32.jsonl.gz");
    let form = NativeKeyForm::Tagged;
    let counts = check(capture, form, |scenario| Some(hasher(scenario, form)));
    assert_eq!(counts, Counts { equal: 665, other: 3 });
}

/// Their default seeds are random; one scenario had its own.
#[test]
fn hashes_of_vllm_0_16_and_0_23_with_a_seed_are_computed() {
    let form = NativeKeyForm::Plain;
    let known = |scenario: &str| (scenario == "two-cbor-bytes-seed0").then(|| hasher(scenario, form));
    let counts = check(include_bytes!("fixtures/captures/vllm-0.23.jsonl.gz"), form, known);
    assert_eq!(counts, Counts { equal: 16, other: 0 });
    // Of a salted prompt and what is behind it: salts are not in the events before 0.17.
    let counts = check(include_bytes!("fixtures/captures/vllm-0.16.jsonl.gz"), form, known);
    assert_eq!(counts, Counts { equal: 20, other: 12 });
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    equal: usize,
    other: usize,
}

fn hasher(scenario: &str, form: NativeKeyForm) -> NativeHasher {
    match scenario {
        "two-cbor-bytes-seed0" => NativeHasher::new(NativeAlgorithm::Sha256Cbor, "0", form),
        _ => NativeHasher::new(NativeAlgorithm::Sha256, SEED_DEFAULT, form),
    }
}

fn check(capture: &[u8], form: NativeKeyForm, known: impl Fn(&str) -> Option<NativeHasher>) -> Counts {
    let mut text = String::new();
    flate2::read::GzDecoder::new(capture).read_to_string(&mut text).expect("the fixture is gzipped text");
    let mut counts = Counts::default();
    let mut hasher = None;
    let mut digests = HashMap::new();
    for line in text.lines() {
        match serde_json::from_str(line).expect("a line of the documented shape") {
            Line::Scenario { scenario } => {
                hasher = known(&scenario);
                digests.clear();
            }
            Line::Published { stream, payload } => {
                let Some(hasher) = &hasher else { continue };
                let batch = decode_batch(&hex(&payload)).expect("a recorded payload is a batch");
                for event in batch.events {
                    if let Event::Stored(stored) = event {
                        check_event(hasher, form, stream, &stored, &mut digests, &mut counts);
                    }
                }
            }
            Line::Other {} => {}
        }
    }
    counts
}

fn check_event(
    hasher: &NativeHasher,
    form: NativeKeyForm,
    stream: u32,
    stored: &Stored,
    digests: &mut HashMap<(u32, EngineHash), NativeDigest>,
    counts: &mut Counts,
) {
    let size = usize::try_from(stored.block_size).expect("a small number");
    if stored.tokens.len() != stored.hashes.len() * size {
        return; // A window group's: which tokens are whose is not told.
    }
    let parent = match stored.parent {
        None => Some(hasher.root()),
        Some(parent) => digests.get(&(stream, parent)).copied(),
    };
    let Some(mut parent) = parent else { return };
    for (position, (hash, tokens)) in stored.hashes.iter().zip(stored.tokens.chunks(size)).enumerate() {
        let extras = stored.extra_keys.get(position).map(Vec::as_slice).unwrap_or_default();
        let tagged = extras.iter().map(|extra| tagged(extra, stored.lora_name.as_deref()));
        let keys: Vec<_> = match form {
            NativeKeyForm::Plain => extras.iter().map(plain).collect(),
            NativeKeyForm::Tagged => tagged.collect(),
        };
        parent = hasher.block(&parent, tokens, &keys);
        if parent.engine_hash() == *hash {
            counts.equal += 1;
        } else {
            counts.other += 1;
        }
        digests.insert((stream, *hash), parent);
    }
}

/// As vLLM 0.31 and newer hashes it.
fn tagged(extra: &RawExtra, adapter: Option<&str>) -> NativeKey {
    let text = NativeKey::text;
    let parts = match extra {
        RawExtra::Text(name) if Some(&**name) == adapter => {
            vec![text("lora"), text(name), text(ADAPTER_PATH)]
        }
        RawExtra::Text(salt) => vec![text("cache_salt"), text(salt)],
        RawExtra::Media { id, offset } => vec![text("mm"), text(id), NativeKey::Int(*offset)],
        RawExtra::Bytes(digest) => vec![text("prompt_embeds"), NativeKey::Bytes(digest.clone())],
        RawExtra::Unknown(_) => panic!("no such extra was recorded"),
    };
    NativeKey::Tuple(parts.into())
}

/// As older ones do.
fn plain(extra: &RawExtra) -> NativeKey {
    match extra {
        RawExtra::Text(text) => NativeKey::text(text),
        other => panic!("not recorded: {other:?}"),
    }
}
