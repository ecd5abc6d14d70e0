//! Keys against the vectors that an independent program computed from the specification.

use serde::Deserialize;

use crate::hex::hex;

use super::*;

#[derive(Deserialize)]
struct Vectors {
    roots: Vec<RootVector>,
    blocks: Vec<BlockVector>,
}

#[derive(Deserialize)]
struct RootVector {
    key: String,
    model: String,
    lora: Option<String>,
    salt: Option<String>,
    root: String,
}

#[derive(Deserialize)]
struct BlockVector {
    key: String,
    parent: String,
    tokens: Vec<u32>,
    extras: Vec<ExtraVector>,
    block: String,
}

#[derive(Deserialize)]
struct ExtraVector {
    kind: String,
    value: String,
    offset: Option<i64>,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../vectors/block_keys.json")).expect("the vectors are JSON")
}

fn hasher(key: &str) -> KeyHasher {
    let bytes = hex(key);
    KeyHasher::new(bytes.try_into().expect("a key of 16 bytes"))
}

fn number(text: &str) -> u64 {
    u64::from_str_radix(text, 16).expect("hex")
}

fn extra(vector: &ExtraVector) -> Extra {
    match vector.kind.as_str() {
        "media" => Extra::Media { id: vector.value.as_str().into(), offset: vector.offset },
        "embeddings" => Extra::Embeddings(hex(&vector.value).into()),
        "unknown" => Extra::Unknown(hex(&vector.value).into()),
        "ahead" => {
            let bytes = hex(&vector.value);
            let (tokens, _) = bytes.as_chunks::<4>();
            Extra::Ahead(tokens.iter().map(|token| u32::from_le_bytes(*token)).collect())
        }
        other => panic!("kind {other}"),
    }
}

#[test]
fn roots_are_those_of_the_specification() {
    let vectors = vectors().roots;
    assert!(vectors.len() >= 14);
    for vector in vectors {
        let namespace =
            Namespace { model: &vector.model, lora: vector.lora.as_deref(), salt: vector.salt.as_deref() };
        let root = hasher(&vector.key).root(&namespace);
        assert_eq!(root, BlockKey(number(&vector.root)), "{namespace:?}");
    }
}

#[test]
fn blocks_are_those_of_the_specification() {
    let vectors = vectors().blocks;
    assert!(vectors.len() >= 80);
    for vector in vectors {
        let extras: Vec<_> = vector.extras.iter().map(extra).collect();
        let block = hasher(&vector.key).block(BlockKey(number(&vector.parent)), &vector.tokens, &extras);
        assert_eq!(
            block,
            BlockKey(number(&vector.block)),
            "{} tokens, extras {extras:?}",
            vector.tokens.len()
        );
        if let [Extra::Ahead(ahead)] = extras.as_slice() {
            let parent = BlockKey(number(&vector.parent));
            assert_eq!(hasher(&vector.key).block_ahead(parent, &vector.tokens, ahead), block);
        }
    }
}

#[test]
fn an_empty_name_is_not_an_absent_one() {
    let hasher = KeyHasher::new([1; 16]);
    let absent = hasher.root(&Namespace { model: "m", lora: None, salt: None });
    let empty_lora = hasher.root(&Namespace { model: "m", lora: Some(""), salt: None });
    let empty_salt = hasher.root(&Namespace { model: "m", lora: None, salt: Some("") });
    assert_ne!(absent, empty_lora);
    assert_ne!(absent, empty_salt);
    assert_ne!(empty_lora, empty_salt);
}

#[test]
fn two_blocks_of_two_are_not_one_of_four() {
    let hasher = KeyHasher::new([1; 16]);
    let root = hasher.root(&Namespace { model: "m", lora: None, salt: None });
    let halves = hasher.block(hasher.block(root, &[1, 2], &[]), &[3, 4], &[]);
    assert_ne!(halves, hasher.block(root, &[1, 2, 3, 4], &[]));
}

#[test]
fn the_key_is_not_shown() {
    assert_eq!(format!("{:?}", KeyHasher::new([7; 16])), "KeyHasher { .. }");
}
