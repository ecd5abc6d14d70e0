//! Recorded events of real vLLM servers as one hears them who joins late: never more hits than vLLM counted, and more with
//! the engine's own hashes than without.
#![cfg(test)]

#[path = "../src/hex.rs"]
mod hex;

use std::io::Read as _;
use std::num::NonZeroU32;

use serde::Deserialize;
use warmpath_kv::index::{ClearCause, Origin};
use warmpath_kv::native_hash::{NativeAlgorithm, NativeHasher, NativeKeyForm, NativeNamespace, SEED_DEFAULT};
use warmpath_kv::{Hits, Index, IndexLimits, KeyHasher, Namespace, StreamId, Trust, decode_batch};

use hex::hex;

/// One line of a capture; see `fixtures/README.md`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Scenario {
        scenario: String,
        streams: u32,
    },
    Published {
        stream: u32,
        payload: String,
    },
    Reconnected {
        reconnected: u32,
    },
    Request {
        request: String,
        stream: u32,
        tokens: Vec<u32>,
        hits: u32,
        lora: Option<String>,
        salt: Option<String>,
    },
}

/// Tokens over all requests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    counted: u32,
    predicted: u32,
    recognized_blocks: u64,
}

#[test]
fn who_joins_late_finds_what_is_held_by_the_engine_s_own_hashes_and_never_more() {
    let (mut gained, mut recognized) = (0, 0);
    for missed in [0, 1, 2, 3, 5, 8, 12, 20] {
        let (without, with) = (replay(missed, false), replay(missed, true));
        assert_eq!(without.recognized_blocks, 0);
        assert!(with.predicted >= without.predicted, "{missed}: {with:?} {without:?}");
        gained += with.predicted - without.predicted;
        recognized += with.recognized_blocks;
        if missed == 0 {
            assert_eq!((with.predicted, with.recognized_blocks), (with.counted, 0), "nothing to find");
        }
    }
    assert_eq!((gained, recognized), (1440, 39));
}

/// `missed`: messages at the beginning of each scenario that are not heard.
fn replay(missed: usize, recognizes: bool) -> Sums {
    let mut text = String::new();
    let capture = &include_bytes!("fixtures/captures/vllm-0.32.jsonl.gz")[..];
    flate2::read::GzDecoder::new(capture).read_to_string(&mut text).expect("the fixture is gzipped text");
    let mut sums = Sums::default();
    let (mut scenario, mut heard, mut index) = (String::new(), 0, empty_index());
    for line in text.lines() {
        match serde_json::from_str(line).expect("a line of the documented shape") {
            Line::Scenario { scenario: name, streams } => {
                (scenario, heard, index) = (name, 0, empty_index());
                for stream in 0..streams {
                    index.add_stream(StreamId(stream), "tiny");
                    index.set_trust(StreamId(stream), Trust::Live);
                }
            }
            Line::Published { stream, payload } => {
                heard += 1;
                if heard > missed {
                    let batch = decode_batch(&hex(&payload)).expect("a recorded payload is a batch");
                    index.apply(StreamId(stream), &batch, Origin::Published);
                }
            }
            Line::Reconnected { reconnected } => index.clear(StreamId(reconnected), ClearCause::Restarted),
            // A reset of an idle server is published only with its next request.
            Line::Request { request, .. } if request == "a after double reset" => {}
            Line::Request { request, stream, tokens, hits, lora, salt } => {
                let id = StreamId(stream);
                let namespace = Namespace { model: "tiny", lora: lora.as_deref(), salt: salt.as_deref() };
                let keys = index.key_plan().keys(&namespace, &tokens);
                if recognizes && index.awaits(id) {
                    let hashes = native(&scenario, &namespace, &tokens);
                    let expected = index.would_recognize(id, &hashes);
                    let recognized = index.recognize(id, &keys, &hashes);
                    assert!(expected || recognized == 0);
                    sums.recognized_blocks += recognized;
                }
                let mut found = Hits::default();
                index.hits(&keys, &mut found);
                assert!(found.tokens(id) <= hits, "a phantom: {scenario} {request}, {missed} missed");
                sums.predicted += found.tokens(id);
                sums.counted += hits;
            }
        }
    }
    sums
}

fn native(scenario: &str, namespace: &Namespace<'_>, tokens: &[u32]) -> Vec<warmpath_kv::EngineHash> {
    let (algorithm, seed) = match scenario {
        "two-cbor-bytes-seed0" => (NativeAlgorithm::Sha256Cbor, "0"),
        _ => (NativeAlgorithm::Sha256, SEED_DEFAULT),
    };
    let hasher = NativeHasher::new(algorithm, seed, NativeKeyForm::Tagged);
    let lora = namespace.lora.map(|name| (name, "models/tiny-lora"));
    let namespace = NativeNamespace { lora, salt: namespace.salt };
    hasher.prompt(&namespace, tokens, NonZeroU32::new(32).expect("above 0"))
}

fn empty_index() -> Index {
    Index::new(KeyHasher::new(*b"a key for tests."), IndexLimits::default())
}
