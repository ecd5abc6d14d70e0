//! Events as SGLang and TensorRT-LLM write them.

use super::*;

/// Hashes of SGLang and TensorRT-LLM are signed.
const SIGNED: [i64; 2] = [-5, i64::MIN];
const HASHES: [EngineHash; 2] = [EngineHash(5_u64.wrapping_neg()), EngineHash(1 << 63)];

fn signed() -> Value {
    Value::Array(SIGNED.map(Value::Int).to_vec())
}

/// The fields that all versions of SGLang have: two pages of one token.
fn pages() -> Vec<Value> {
    vec![text("BlockStored"), signed(), Value::Int(-7), uints(&[1, 70_000]), Value::Uint(1), Value::Nil]
}

fn named_pages() -> Vec<(&'static str, Value)> {
    let names = ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id"];
    names.into_iter().zip(pages()).collect()
}

fn stored_pages() -> Stored {
    Stored {
        hashes: HASHES.to_vec(),
        parent: Some(EngineHash(7_u64.wrapping_neg())),
        tokens: vec![1, 70_000],
        block_size: 1,
        ..Stored::default()
    }
}

fn stored(stored: Stored) -> Vec<Event> {
    vec![Event::Stored(Box::new(stored))]
}

/// Reads one event, without a complaint.
fn clean(event: Value) -> Vec<Event> {
    let batch = batch(vec![event]);
    assert_eq!(batch.problems, Problems::default(), "{batch:?}");
    batch.events
}

#[test]
fn arrays_of_sglang_up_to_0_5_16() {
    assert_eq!(clean(Value::Array(pages())), stored(stored_pages()), "0.5.2 to 0.5.6");
    for (name, medium) in [
        ("GPU", Medium::Gpu),
        ("CPU_PINNED", Medium::Cpu),
        ("DISK", Medium::Disk),
        ("EXTERNAL", Medium::Remote),
    ] {
        let with_medium = [pages(), vec![text(name)]].concat();
        assert_eq!(clean(Value::Array(with_medium)), stored(Stored { medium, ..stored_pages() }), "{name}");
        let gone = Value::Array(vec![text("BlockRemoved"), signed(), text(name)]);
        let removed = Removed { hashes: HASHES.to_vec(), medium, group: None };
        assert_eq!(clean(gone), vec![Event::Removed(removed)], "{name}");
    }
    let gone = Value::Array(vec![text("BlockRemoved"), signed()]);
    let removed = Removed { hashes: HASHES.to_vec(), ..Removed::default() };
    assert_eq!(clean(gone), vec![Event::Removed(removed)]);
    assert_eq!(clean(Value::Array(vec![text("AllBlocksCleared")])), vec![Event::Cleared]);
}

#[test]
fn arrays_of_sglang_0_5_19_have_the_salt_in_a_map_behind() {
    let salt = || map([("cache_salt", text("tenant"))]);
    let expected = Stored { cache_salt: Some("tenant".into()), ..stored_pages() };
    let salted = [pages(), vec![text("GPU"), salt()]].concat();
    assert_eq!(clean(Value::Array(salted)), stored(expected.clone()));
    assert_eq!(clean(Value::Array([pages(), vec![salt()]].concat())), stored(expected), "wherever it stands");
}

#[test]
fn maps_of_sglang_0_5_21_and_newer() {
    let fields = [
        ("medium", text("GPU")),
        ("cache_salt", text("tenant")),
        ("session_id", text("s-1")),
        ("lora_name", text("a")),
    ];
    let event = map(named_pages().into_iter().chain(fields));
    let expected =
        Stored { cache_salt: Some("tenant".into()), lora_name: Some("a".into()), ..stored_pages() };
    assert_eq!(clean(event), stored(expected));
    assert_eq!(clean(map(named_pages())), stored(stored_pages()), "all that may be left out");
    let gone = map([("type", text("BlockRemoved")), ("block_hashes", signed()), ("medium", text("DISK"))]);
    let removed = Removed { hashes: HASHES.to_vec(), medium: Medium::Disk, group: None };
    assert_eq!(clean(gone), vec![Event::Removed(removed)]);
    assert_eq!(clean(map([("type", text("AllBlocksCleared"))])), vec![Event::Cleared]);
}

#[test]
fn of_bigram_keys_the_first_id_is_the_token() {
    let mut fields = pages();
    fields[3] = Value::Array(vec![uints(&[1, 70_000]), uints(&[70_000, 3])]);
    assert_eq!(clean(Value::Array(fields)), stored(stored_pages()));
}

/// The third element is the rank under another name, which an array does not show; it may be missing.
#[test]
fn batches_of_sglang_name_the_attention_rank() {
    for (rank, expected) in [(vec![Value::Uint(3)], Some(3)), (vec![Value::Nil], None), (vec![], None)] {
        let outer = [vec![Value::Float(1.5), Value::Array(vec![Value::Array(pages())])], rank].concat();
        let batch = decode_batch(&pack(&Value::Array(outer))).expect("a batch");
        assert_eq!((batch.rank, batch.events.len(), batch.ts), (expected, 1, 1.5));
    }
}

/// Fields of TensorRT-LLM's feed: no medium, no adapter's number.
fn tee() -> Vec<(&'static str, Value)> {
    let names = ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size"];
    names.into_iter().zip(pages()).collect()
}

#[test]
fn events_of_tensorrt_llm_s_feed() {
    assert_eq!(clean(map(tee())), stored(stored_pages()));
    let first = tee().into_iter().map(|(name, value)| match name {
        "parent_block_hash" => (name, Value::Nil),
        _ => (name, value),
    });
    assert_eq!(clean(map(first)), stored(Stored { parent: None, ..stored_pages() }));
    let gone = map([("type", text("BlockRemoved")), ("block_hashes", signed())]);
    let removed = Removed { hashes: HASHES.to_vec(), ..Removed::default() };
    assert_eq!(clean(gone), vec![Event::Removed(removed)]);
}

/// Tokens of media only stand for them, so what is told of the media is part of a block.
#[test]
fn media_of_tensorrt_llm_s_feed_are_extras_of_their_block() {
    let infos = |infos| map(tee().into_iter().chain([("block_mm_infos", infos)]));
    for none in [Value::Nil, Value::Array(vec![]), Value::Array(vec![Value::Nil, Value::Nil])] {
        assert_eq!(clean(infos(none)), stored(stored_pages()));
    }
    let image = || map([("mm_objects", Value::Array(vec![map([("mm_hash", Value::Int(-9))])]))]);
    let extra = RawExtra::Unknown(pack(&image()).into());
    let expected = Stored { extra_keys: vec![vec![], vec![extra]], ..stored_pages() };
    assert_eq!(clean(infos(Value::Array(vec![Value::Nil, image()]))), stored(expected));
    let three = batch(vec![infos(Value::Array(vec![image(), image(), image()]))]);
    assert_eq!(three.problems.malformed_events, 1, "of another number than the hashes");
}
