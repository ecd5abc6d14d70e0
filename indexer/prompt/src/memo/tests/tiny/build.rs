//! Puts small tokenizers together.

use serde_json::{Value as Json, json};

use super::Tiny;
use crate::memo::CutRule;
use crate::memo::tests::texts::Random;

/// Merges of each vocabulary.
const MERGES: usize = 600;

pub(super) fn byte_level(
    name: &str,
    normalizer: Json,
    pre_tokenizer: Json,
    added: &[Json],
    rule: CutRule,
) -> Tiny {
    let common = "abcdTheworxyLs'12.!?/ĠĠĊčĉÃ©Ìģ".chars().map(String::from).collect();
    let (vocab, merges) = grow(byte_characters(), common, |_, _| true);
    let model = json!({"type": "BPE", "vocab": vocab, "merges": merges});
    tiny(name, normalizer, pre_tokenizer, model, added, rule)
}

pub(super) fn sentence_piece(
    name: &str,
    normalizer: Json,
    pre_tokenizer: Json,
    added: &[Json],
    rule: CutRule,
) -> Tiny {
    let bytes = (0..=255_u8).map(|byte| format!("<0x{byte:02X}>"));
    let characters = ('!'..='~').chain(['▁', '\n', 'é', '中']).map(String::from);
    let alphabet = std::iter::once("<unk>".to_owned()).chain(bytes).chain(characters).collect();
    let common = "abcdTheworx12.!▁▁▁\n\n</".chars().map(String::from).collect();
    let (vocab, merges) = grow(alphabet, common, |left, right| {
        let (last, first) = (left.chars().last().unwrap(), right.chars().next().unwrap());
        let is_word = |character: char| character.is_ascii_alphanumeric();
        !(is_word(last) && first == '▁' || last == '\n' && is_word(first))
    });
    let model = json!({
        "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": merges
    });
    tiny(name, normalizer, pre_tokenizer, model, added, rule)
}

fn tiny(
    name: &str,
    normalizer: Json,
    pre_tokenizer: Json,
    mut model: Json,
    added: &[Json],
    rule: CutRule,
) -> Tiny {
    let mut added = added.to_vec();
    let free = model["vocab"].as_object().unwrap().len();
    for (place, token) in added.iter_mut().enumerate() {
        let content = token["content"].as_str().unwrap().to_owned();
        let id = model["vocab"].get(&content).cloned().unwrap_or_else(|| (free + place).into());
        token["id"] = id.clone();
        model["vocab"][content] = id;
    }
    let tokens = added.iter().map(|token| &*token["content"].as_str().unwrap().to_owned().leak()).collect();
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "post_processor": frame(added.first()), "decoder": null, "model": model,
    });
    Tiny { name: name.to_owned(), json, tokens, rule, has_prefix: false }
}

/// Puts a token before and behind texts.
fn frame(token: Option<&Json>) -> Json {
    let Some(token) = token else { return Json::Null };
    let (bos, text) =
        (json!({"SpecialToken": {"id": "B", "type_id": 0}}), json!({"Sequence": {"id": "A", "type_id": 0}}));
    json!({
        "type": "TemplateProcessing",
        "single": [bos, text, bos],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"B": {"id": "B", "ids": [token["id"]], "tokens": [token["content"]]}},
    })
}

/// Adds made-up merges, first of what is `common`, then of what came of it.
fn grow(alphabet: Vec<String>, common: Vec<String>, may_merge: impl Fn(&str, &str) -> bool) -> (Json, Json) {
    let mut random = Random(5);
    let (mut vocab, mut pieces, mut merges) = (alphabet, common, Vec::new());
    while merges.len() < MERGES {
        let [left, right] = [(); 2].map(|()| pieces[random.below(pieces.len())].clone());
        let whole = format!("{left}{right}");
        if whole.chars().count() <= 6 && may_merge(&left, &right) && !vocab.contains(&whole) {
            merges.push(json!([left, right]));
            vocab.push(whole.clone());
            pieces.push(whole);
        }
    }
    let vocab = vocab.into_iter().enumerate().map(|(id, piece)| (piece, id.into()));
    (Json::Object(vocab.collect()), Json::Array(merges))
}

pub(super) fn added(contents: &[&str], change: impl Fn(&mut Json)) -> Vec<Json> {
    let token = |content: &&str| {
        let mut token = json!({
            "id": 0, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        });
        change(&mut token);
        token
    };
    contents.iter().map(token).collect()
}

pub(super) fn byte_pieces(patterns: &[&str]) -> Json {
    let split = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    sequence(&patterns.iter().map(split).chain([bytes]).collect::<Vec<_>>())
}

pub(super) fn sequence(steps: &[Json]) -> Json {
    json!({"type": "Sequence", "pretokenizers": steps})
}

/// Takes entries out of the vocabulary, and the merges that need them. Ids of the others stay.
pub(super) fn forget(json: &mut Json, is_gone: impl Fn(&str) -> bool) {
    let model = json["model"].as_object_mut().unwrap();
    model["vocab"].as_object_mut().unwrap().retain(|entry, _| !is_gone(entry));
    model["merges"]
        .as_array_mut()
        .unwrap()
        .retain(|merge| !merge.as_array().unwrap().iter().any(|side| is_gone(side.as_str().unwrap())));
}

/// Adds an entry that no merge makes.
pub(super) fn add_entry(json: &mut Json, entry: &str) {
    let vocab = json["model"]["vocab"].as_object_mut().unwrap();
    let free = vocab.values().filter_map(Json::as_u64).max().unwrap() + 1;
    vocab.insert(entry.to_owned(), free.into());
}

/// Adds the first merge of all.
pub(super) fn add_merge(json: &mut Json, left: &str, right: &str) {
    add_entry(json, &format!("{left}{right}"));
    json["model"]["merges"].as_array_mut().unwrap().insert(0, json!([left, right]));
}

/// How byte-level vocabularies write bytes: printable ones as themselves, the others as characters from U+0100 on.
fn byte_characters() -> Vec<String> {
    let mut next = 0xff;
    let mut character = |byte: u32| match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => char::from_u32(byte),
        _ => {
            next += 1;
            char::from_u32(next)
        }
    };
    (0..256).map(|byte| character(byte).unwrap().to_string()).collect()
}
