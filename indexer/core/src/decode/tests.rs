use serde::Deserialize;

use crate::event::{Event, Group, GroupKind, Medium, RawExtra, Removed, Stored};

use crate::hex::hex;

use super::*;

mod building;
mod other_engines;

use building::{Value, map, pack, text};

const HASHES: [EngineHash; 2] = [EngineHash(0x1122_3344_5566_7788), EngineHash(0xffee_ddcc_bbaa_9988)];
const PARENT: EngineHash = EngineHash(0x0102_0304_0506_0708);

#[derive(Deserialize)]
struct Version {
    vllm: String,
    stored_fields: Vec<String>,
    payloads: std::collections::BTreeMap<String, String>,
}

fn versions() -> Vec<Version> {
    let text = include_str!("../../tests/fixtures/vllm-event-encodings.json");
    serde_json::from_str(text).expect("the fixture is JSON")
}

/// What a version's `stored-int-hashes` means, given the fields it has.
fn stored(version: &Version) -> Stored {
    let has = |field: &str| version.stored_fields.iter().any(|known| known == field);
    Stored {
        hashes: HASHES.to_vec(),
        parent: Some(PARENT),
        tokens: vec![1, 2, 300, 70_000],
        block_size: 2,
        extra_keys: if has("extra_keys") {
            vec![vec![RawExtra::Text("salt-a".into())], vec![]]
        } else {
            vec![]
        },
        group: Group {
            index: has("group_idx").then_some(0),
            kind: has("kv_cache_spec_kind").then_some(GroupKind::Full),
        },
        ..Stored::default()
    }
}

/// And its `stored-every-field`.
fn stored_every_field(version: &Version) -> Stored {
    let has = |field: &str| version.stored_fields.iter().any(|known| known == field);
    let lora = || RawExtra::Text("my-lora".into());
    let media = RawExtra::Media { id: "mmhash".into(), offset: 4 };
    Stored {
        lora_name: has("lora_name").then(|| "my-lora".into()),
        has_lora_id: true,
        extra_keys: if has("extra_keys") { vec![vec![lora(), media], vec![lora()]] } else { vec![] },
        group: Group {
            index: has("group_idx").then_some(1),
            kind: has("kv_cache_spec_kind").then_some(GroupKind::SlidingWindow { tokens: 64 }),
        },
        lookahead: if has("lookahead_token_ids") { vec![vec![300], vec![]] } else { vec![] },
        ..stored(version)
    }
}

fn removed(version: &Version, group: u32) -> Removed {
    let has_group = version.stored_fields.iter().any(|known| known == "group_idx");
    Removed { hashes: HASHES.to_vec(), medium: Medium::Gpu, group: has_group.then_some(group) }
}

#[test]
fn payloads_of_26_vllm_releases_decode_to_the_same_events() {
    let versions = versions();
    assert_eq!(versions.len(), 26);
    for version in &versions {
        for (case, payload) in &version.payloads {
            let batch = decode_batch(&hex(payload)).expect("a batch");
            let is_bytes = case == "stored-bytes-hashes";
            let stored = |stored: Stored| Event::Stored(Box::new(stored));
            let expected = match case.as_str() {
                "stored-int-hashes" => vec![stored(self::stored(version))],
                "stored-bytes-hashes" => vec![stored(Stored {
                    hashes: vec![EngineHash(0x1819_1a1b_1c1d_1e1f), EngineHash(0x3839_3a3b_3c3d_3e3f)],
                    parent: Some(EngineHash(0x5859_5a5b_5c5d_5e5f)),
                    ..self::stored(version)
                })],
                "stored-root-no-optional" => vec![stored(Stored {
                    parent: None,
                    extra_keys: vec![],
                    group: Group::default(),
                    ..self::stored(version)
                })],
                "stored-every-field" => vec![stored(stored_every_field(version))],
                "removed" => vec![Event::Removed(removed(version, 0))],
                "removed-every-field" => vec![Event::Removed(removed(version, 1))],
                "cleared" | "no-rank" => vec![Event::Cleared],
                "mixed" => {
                    vec![Event::Removed(removed(version, 0)), stored(self::stored(version)), Event::Cleared]
                }
                other => panic!("unknown case {other}"),
            };
            assert_eq!(batch.events, expected, "{} {case}", version.vllm);
            assert_eq!(batch.problems, Problems::default(), "{} {case}", version.vllm);
            assert_eq!(batch.ts.to_bits(), 1_700_000_000.25_f64.to_bits());
            let rank = match case.as_str() {
                "stored-every-field" => Some(1),
                "no-rank" => None,
                _ => Some(0),
            };
            assert_eq!(batch.rank, rank, "{} {case}", version.vllm);
            assert!(!is_bytes || batch.events.len() == 1);
        }
    }
}

#[test]
fn a_payload_cut_anywhere_is_truncated_and_never_a_batch() {
    for version in versions() {
        let payload = hex(&version.payloads["mixed"]);
        for length in 0..payload.len() {
            assert_eq!(
                decode_batch(&payload[..length]),
                Err(DecodeError::Truncated),
                "{} at {length}",
                version.vllm
            );
        }
    }
}

#[test]
fn other_values_than_batches_are_refused() {
    for value in [
        Value::Nil,
        Value::Uint(7),
        text("BlockStored"),
        Value::Array(vec![]),
        Value::Array(vec![Value::Float(1.0)]),
        Value::Array(vec![text("now"), Value::Array(vec![])]),
        Value::Array(vec![Value::Float(1.0), Value::Uint(3)]),
        map([("ts", Value::Float(1.0))]),
    ] {
        assert_eq!(decode_batch(&pack(&value)), Err(DecodeError::NotABatch), "{value:?}");
    }
}

#[test]
fn a_payload_above_the_limit_is_refused_by_its_size() {
    let payload = vec![0xc0; PAYLOAD_BYTES_MAX + 1];
    assert_eq!(decode_batch(&payload), Err(DecodeError::TooLarge { bytes: PAYLOAD_BYTES_MAX + 1 }));
}

#[test]
fn the_rank_is_told_without_decoding() {
    for version in versions() {
        for (case, payload) in &version.payloads {
            let payload = hex(payload);
            let rank = decode_batch(&payload).expect("a batch").rank;
            assert_eq!(told_rank(&payload), rank, "{} {case}", version.vllm);
            for asked in 0..300 {
                let may_be = rank.is_none_or(|rank| rank == asked);
                assert_eq!(may_be_of_rank(&payload, asked), may_be, "{} {case} {asked}", version.vllm);
            }
        }
    }
}

#[test]
fn ranks_of_several_bytes_are_not_taken_for_their_last_one() {
    // The time as nil, no events.
    let payload = |rank: &[u8]| [&[0x93, 0xc0, 0x90], rank].concat();
    let ranks: [(&[u8], Option<u32>); 7] = [
        (&[5], Some(5)),
        (&[0xcc, 5], Some(5)),
        (&[0xcd, 1, 5], Some(261)),
        (&[0xce, 0, 1, 0, 5], Some(65_541)),
        (&[0xcf, 0, 0, 0, 0, 0, 0, 1, 5], Some(261)),
        (&[0xd1, 0xff, 5], None),
        (&[0xc0], None),
    ];
    for (bytes, rank) in ranks {
        let payload = payload(bytes);
        assert_eq!(told_rank(&payload), rank, "{bytes:?}");
        assert_eq!(may_be_of_rank(&payload, 5), rank.is_none_or(|rank| rank == 5), "{bytes:?}");
        assert_eq!(may_be_of_rank(&payload, 261), rank.is_none_or(|rank| rank == 261), "{bytes:?}");
    }
    // Two elements, the last byte of which is a number.
    assert!(may_be_of_rank(&[0x92, 0xc0, 5], 7));
    assert_eq!(told_rank(&[]), None);
    assert!(may_be_of_rank(&[], 0));
}

/// A batch of the given events, as their own values.
fn batch(events: Vec<Value>) -> Batch {
    let payload = pack(&Value::Array(vec![Value::Float(1.0), Value::Array(events), Value::Nil]));
    decode_batch(&payload).expect("a batch")
}

fn uints(values: &[u64]) -> Value {
    Value::Array(values.iter().copied().map(Value::Uint).collect())
}

#[test]
fn unknown_and_malformed_events_are_counted_and_the_others_stand() {
    let batch = batch(vec![
        Value::Array(vec![text("BlockMoved"), uints(&[1]), text("CPU")]),
        map([("type", text("CacheResized")), ("blocks", Value::Uint(7))]),
        // Hashes missing, of a wrong type, and no event at all.
        map([("type", text("BlockRemoved")), ("medium", text("GPU"))]),
        Value::Array(vec![text("BlockRemoved"), text("all of them")]),
        map([("block_hashes", uints(&[1]))]),
        Value::Uint(1),
        Value::Array(vec![text("BlockRemoved"), uints(&[9])]),
    ]);
    let expected = Removed { hashes: vec![EngineHash(9)], ..Removed::default() };
    assert_eq!(batch.events, vec![Event::Removed(expected)]);
    let problems = Problems { unknown_events: 2, malformed_events: 4, unknown_fields: 0 };
    assert_eq!(batch.problems, problems);
}

#[test]
fn unknown_fields_are_counted_and_skipped_however_deep() {
    let mut deep = Value::Nil;
    for _ in 0..100_000 {
        deep = Value::Array(vec![deep]);
    }
    let batch = batch(vec![map([
        ("novelty", deep),
        ("block_hashes", uints(&[9])),
        ("type", text("BlockRemoved")),
        ("block_mm_infos", map([("a", Value::Uint(1))])),
    ])]);
    assert_eq!(batch.events.len(), 1);
    assert_eq!(batch.problems, Problems { unknown_fields: 2, ..Problems::default() });
}

#[test]
fn extra_elements_of_an_array_event_are_unknown_fields() {
    let mut fields = vec![text("BlockRemoved"), uints(&[9]), Value::Nil, Value::Nil, Value::Nil, Value::Nil];
    fields.push(text("new in 0.40"));
    let batch = batch(vec![Value::Array(fields)]);
    assert_eq!(batch.events.len(), 1);
    assert_eq!(batch.problems, Problems { unknown_fields: 1, ..Problems::default() });
}

fn read_stored(fields: Vec<(&str, Value)>) -> Option<Stored> {
    let mut all = vec![
        ("type", text("BlockStored")),
        ("block_hashes", uints(&[9])),
        ("token_ids", uints(&[1, 2])),
        ("block_size", Value::Uint(2)),
    ];
    all.retain(|(name, _)| !fields.iter().any(|(other, _)| other == name));
    all.extend(fields);
    match batch(vec![map(all)]).events.pop() {
        Some(Event::Stored(stored)) => Some(*stored),
        _ => None,
    }
}

#[test]
fn hashes_may_be_signed_unsigned_or_bytes() {
    let hash = |value| read_stored(vec![("parent_block_hash", value)]).expect("a stored event").parent;
    assert_eq!(hash(Value::Int(-2)), Some(EngineHash(u64::MAX - 1)));
    assert_eq!(hash(Value::Uint(u64::MAX - 1)), Some(EngineHash(u64::MAX - 1)));
    assert_eq!(hash(Value::Bin(vec![0xaa, 1, 2, 3, 4, 5, 6, 7, 8])), Some(EngineHash(0x0102_0304_0506_0708)));
    assert_eq!(hash(Value::Bin(vec![1, 2])), Some(EngineHash(0x0102)));
    assert_eq!(hash(Value::Nil), None);
}

#[test]
fn only_a_medium_named_gpu_in_any_case_or_none_is_the_main_pool() {
    let medium = |fields| read_stored(fields).expect("a stored event").medium;
    assert_eq!(medium(vec![]), Medium::Gpu);
    assert_eq!(medium(vec![("medium", Value::Nil)]), Medium::Gpu);
    assert_eq!(medium(vec![("medium", text("gpu"))]), Medium::Gpu);
    assert_eq!(medium(vec![("medium", text("GPU")), ("locality", text("LOCAL"))]), Medium::Gpu);
    assert_eq!(medium(vec![("medium", text("GPU")), ("locality", text("REMOTE"))]), Medium::Remote);
    for (name, other) in [
        ("CPU", Medium::Cpu),
        ("cpu", Medium::Cpu),
        ("CPU_PINNED", Medium::Cpu),
        ("DISK", Medium::Disk),
        ("FS", Medium::Disk),
        ("OBJ", Medium::Storage),
        ("STORAGE", Medium::Storage),
        ("EXTERNAL", Medium::Remote),
        ("NVME_OVER_PIGEON", Medium::Other),
    ] {
        assert_eq!(medium(vec![("medium", text(name))]), other, "{name}");
    }
    let removed = map([
        ("type", text("BlockRemoved")),
        ("block_hashes", uints(&[9])),
        ("medium", text("cpu")),
        ("locality", text("LOCAL")),
    ]);
    let expected = Removed { hashes: vec![EngineHash(9)], medium: Medium::Cpu, group: None };
    assert_eq!(batch(vec![removed]).events, vec![Event::Removed(expected)]);
}

/// Offload connectors announce blocks without tokens.
#[test]
fn c25_placeholders_of_offload_connectors_decode() {
    let placeholder = read_stored(vec![
        ("token_ids", uints(&[])),
        ("block_size", Value::Uint(0)),
        ("medium", text("CPU")),
        ("group_idx", Value::Uint(0)),
    ])
    .expect("a stored event");
    assert_eq!(placeholder.hashes, vec![EngineHash(9)]);
    assert_eq!((placeholder.block_size, placeholder.tokens.len()), (0, 0));
}

#[test]
fn kinds_of_groups_are_those_that_matter_for_hits() {
    let kind = |name: &str, window: Value| {
        let fields = vec![("kv_cache_spec_kind", text(name)), ("kv_cache_spec_sliding_window", window)];
        read_stored(fields).expect("a stored event").group.kind.expect("a kind")
    };
    for full in ["full_attention", "mla_attention", "sink_full_attention"] {
        assert_eq!(kind(full, Value::Nil), GroupKind::Full, "{full}");
    }
    for window in ["sliding_window", "sliding_window_mla"] {
        assert_eq!(kind(window, Value::Uint(64)), GroupKind::SlidingWindow { tokens: 64 }, "{window}");
        assert_eq!(kind(window, Value::Nil), GroupKind::Other, "{window} of no size");
    }
    assert_eq!(kind("mamba", Value::Nil), GroupKind::Recurrent);
    for other in ["chunked_local_attention", "cross_attention", "encoder_only_attention", "unknown", "new"] {
        assert_eq!(kind(other, Value::Uint(64)), GroupKind::Other, "{other}");
    }
}

#[test]
fn tokens_ahead_come_one_list_per_hash_or_not_at_all() {
    let lists = |lists: &[&[u64]]| Value::Array(lists.iter().map(|list| uints(list)).collect());
    let read = |value| read_stored(vec![("lookahead_token_ids", value)]).map(|stored| stored.lookahead);
    assert_eq!(read(lists(&[&[7, 70_000]])), Some(vec![vec![7, 70_000]]));
    assert_eq!(read(lists(&[&[]])), Some(vec![]));
    assert_eq!(read(Value::Array(vec![Value::Nil])), Some(vec![]));
    assert_eq!(read(Value::Nil), Some(vec![]));
    assert_eq!(read(lists(&[&[7], &[8]])), None, "of another number than the hashes");
    assert_eq!(read(Value::Uint(7)), None);
}

#[test]
fn a_lora_id_may_be_a_number_or_a_text_and_does_not_shift_what_follows() {
    for id in [Value::Uint(3), text("b5e0-…"), Value::Array(vec![Value::Nil])] {
        let stored = read_stored(vec![("lora_id", id), ("lora_name", text("a"))]).expect("a stored event");
        assert!(stored.has_lora_id);
        assert_eq!(stored.lora_name.as_deref(), Some("a"));
    }
}

#[test]
fn extra_keys_of_another_number_than_the_hashes_are_malformed() {
    let salt = || Value::Array(vec![text("salt")]);
    assert_eq!(read_stored(vec![("extra_keys", Value::Array(vec![Value::Nil, salt()]))]), None);
    let one = read_stored(vec![("extra_keys", Value::Array(vec![salt()]))]).expect("a stored event");
    assert_eq!(one.extra_keys, vec![vec![RawExtra::Text("salt".into())]]);
}

#[test]
fn extra_keys_keep_their_places_and_none_at_all_are_nothing() {
    let salt = || Value::Array(vec![text("salt")]);
    let fields = |extras| {
        vec![
            ("block_hashes", uints(&[1, 2, 3, 4])),
            ("token_ids", uints(&[0; 8])),
            ("extra_keys", Value::Array(extras)),
        ]
    };
    let extras = |extras| read_stored(fields(extras)).expect("a stored event").extra_keys;
    let nil = || Value::Nil;
    let told = vec![RawExtra::Text("salt".into())];
    assert_eq!(extras(vec![nil(), nil(), salt(), nil()]), vec![vec![], vec![], told.clone(), vec![]]);
    assert_eq!(extras(vec![salt(), nil(), nil(), salt()]), vec![told.clone(), vec![], vec![], told]);
    assert_eq!(extras(vec![nil(), nil(), Value::Array(vec![]), nil()]), Vec::<Vec<_>>::new());
}

#[test]
fn unknown_extra_keys_keep_their_bytes() {
    let tagged = Value::Array(vec![text("cache_salt"), text("x")]);
    let bytes = pack(&tagged);
    let extras = Value::Array(vec![Value::Array(vec![tagged, Value::Bin(vec![1, 2])])]);
    let stored = read_stored(vec![("extra_keys", extras)]).expect("a stored event");
    assert_eq!(
        stored.extra_keys,
        vec![vec![RawExtra::Unknown(bytes.into()), RawExtra::Bytes([1, 2].into())]]
    );
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = decode_batch(&bytes);
        }

        #[test]
        fn a_flipped_byte_never_panics(at in 0_usize..400, to in any::<u8>()) {
            let mut payload = hex(&versions()[25].payloads["mixed"]);
            let at = at % payload.len();
            payload[at] = to;
            let _ = decode_batch(&payload);
        }
    }
}
