//! Small tokenizers of every family: made-up vocabularies in which nearly everything merges with everything, so that
//! whatever may reach across a cut does.

mod build;

use serde_json::{Value as Json, json};

use crate::memo::{CutRule, NewlineCuts};
use build::{add_entry, add_merge, added, byte_level, byte_pieces, forget, sentence_piece, sequence};

pub(super) struct Tiny {
    pub(super) name: String,
    pub(super) json: Json,
    /// Texts of added tokens.
    pub(super) tokens: Vec<&'static str>,
    /// What the proof must find.
    pub(super) rule: CutRule,
    /// Gaps begin with a prefix, so that continuing one takes another encoder.
    pub(super) has_prefix: bool,
}

const BOTH: CutRule = CutRule::Characters { newline: NewlineCuts::All, blank: true };
const AFTER_WORDS: CutRule = CutRule::Characters { newline: NewlineCuts::AfterWords, blank: true };
const WORDS: CutRule = CutRule::Characters { newline: NewlineCuts::None, blank: true };
const LINES: CutRule = CutRule::Characters { newline: NewlineCuts::All, blank: false };
const TOKENS_ONLY: CutRule = CutRule::AddedTokens;

const ADDED: [&str; 3] = ["<s>", "<|im_end|>", "[X ]"];

/// Copied from the models' files, not from the proof.
const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN3_5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_V3: [&str; 3] = [
    r"\p{N}{1,3}",
    "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
];

pub(super) fn all() -> Vec<Tiny> {
    [known_patterns(), byte_level_variants(), sentence_piece_variants(), vocabularies()]
        .into_iter()
        .flatten()
        .collect()
}

fn nfc() -> Json {
    json!({"type": "NFC"})
}

fn plain() -> Vec<Json> {
    added(&ADDED, |_| {})
}

fn flagged(flag: &str) -> Vec<Json> {
    added(&ADDED, |token| token[flag] = true.into())
}

fn known_patterns() -> Vec<Tiny> {
    let patterns: [(&str, &[&str]); 6] = [
        ("cl100k", &[CL100K]),
        ("qwen2", &[QWEN2]),
        ("qwen3.5", &[QWEN3_5]),
        ("o200k", &[O200K]),
        ("tekken", &[TEKKEN]),
        ("deepseek-v3", &DEEPSEEK_V3),
    ];
    let with = |(name, patterns)| {
        let named = |normalizer: Json| {
            let name = format!("{name}, normalizer {normalizer}");
            byte_level(&name, normalizer, byte_pieces(patterns), &plain(), BOTH)
        };
        [named(Json::Null), named(nfc())]
    };
    patterns.into_iter().flat_map(with).collect()
}

fn byte_level_variants() -> Vec<Tiny> {
    let gpt2 = |prefix| json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": true});
    let digits = json!({"type": "Digits", "individual_digits": true});
    let words = json!({"type": "WhitespaceSplit"});
    let qwen2 = |name: &str, added: &[Json], rule| {
        byte_level(&format!("qwen2, {name}"), nfc(), byte_pieces(&[QWEN2]), added, rule)
    };
    let unknown = || byte_pieces(&[r"\s+|\S+"]);
    let lstrip = added(&ADDED, |token| token["lstrip"] = (token["content"] == "<s>").into());
    let nested = added(&["<s", "<s>", "s>b", "b"], |_| {});
    let none = || Json::Null;
    vec![
        byte_level("gpt-2", none(), gpt2(false), &plain(), WORDS),
        byte_level("starcoder", none(), sequence(&[digits, gpt2(false)]), &plain(), WORDS),
        qwen2("rstrip", &flagged("rstrip"), AFTER_WORDS),
        qwen2("normalized", &flagged("normalized"), BOTH),
        qwen2("words in a token", &added(&["a b", "<s>"], |_| {}), LINES),
        qwen2("a token that ends in a blank", &added(&["ab ", "<s>"], |_| {}), LINES),
        qwen2("a line in a token", &added(&["\nab", "<s>"], |_| {}), WORDS),
        qwen2("line feeds in a token", &added(&["\n\n", "<s>"], |_| {}), BOTH),
        // Refused between characters, but added tokens still part a text.
        byte_level("gpt-2 with a prefix", none(), gpt2(true), &plain(), TOKENS_ONLY),
        qwen2("lstrip", &lstrip, TOKENS_ONLY),
        qwen2("rstrip after a word", &added(&["word", "<s>"], |t| t["rstrip"] = true.into()), TOKENS_ONLY),
        byte_level("lowercase", json!({"type": "Lowercase"}), byte_pieces(&[QWEN2]), &plain(), TOKENS_ONLY),
        byte_level("an unknown pattern", none(), unknown(), &plain(), TOKENS_ONLY),
        byte_level("an unknown step", none(), sequence(&[words, gpt2(false)]), &plain(), TOKENS_ONLY),
        byte_level("tokens in each other", none(), unknown(), &nested, TOKENS_ONLY),
        // Nothing is proven.
        qwen2("single word", &flagged("single_word"), CutRule::Nowhere),
        byte_level("an unknown pattern, no tokens", none(), unknown(), &[], CutRule::Nowhere),
    ]
}

fn sentence_piece_variants() -> Vec<Tiny> {
    let prepend =
        || json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace()]});
    let blanks = json!({
        "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false
    });
    let metaspace = |scheme: &str, split: bool, added: &[Json], rule| {
        let step = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split});
        sentence_piece(&format!("metaspace, {scheme}, split {split}"), Json::Null, step, added, rule)
    };
    let plain = plain();
    let one_normalized = added(&ADDED, |token| token["normalized"] = (token["content"] == "<s>").into());
    let rstrip = flagged("rstrip");
    let lines = added(&["\n", "\n\n", "▁▁", "<s>"], |_| {});
    let none = || Json::Null;
    let with_prefix = |tiny: Tiny| Tiny { has_prefix: true, ..tiny };
    vec![
        sentence_piece("gemma", replace(), blanks, &plain, BOTH),
        sentence_piece("gemma, tokens of line feeds", replace(), none(), &lines, BOTH),
        with_prefix(sentence_piece("llama-2", prepend(), none(), &plain, BOTH)),
        with_prefix(sentence_piece("phi-3", prepend(), none(), &rstrip, AFTER_WORDS)),
        with_prefix(metaspace("first", false, &plain, BOTH)),
        with_prefix(metaspace("first", true, &plain, BOTH)),
        with_prefix(metaspace("always", false, &plain, BOTH)),
        with_prefix(metaspace("always", true, &rstrip, AFTER_WORDS)),
        metaspace("never", false, &plain, BOTH),
        // A gap begins behind the token: it must not be taken for a continued one.
        with_prefix(sentence_piece(
            "llama-2, a token that ends a line",
            prepend(),
            none(),
            &added(&["<s>\n", "</s>"], |_| {}),
            WORDS,
        )),
        with_prefix(sentence_piece(
            "llama-2, a token that is a word",
            prepend(),
            none(),
            &added(&["word", "</s>"], |_| {}),
            LINES,
        )),
        metaspace("always", false, &one_normalized, TOKENS_ONLY),
        sentence_piece("blanks as they are", none(), none(), &plain, TOKENS_ONLY),
    ]
}

/// Vocabularies and merges that decide.
fn vocabularies() -> Vec<Tiny> {
    let tiny = |name, rule| sentence_piece(name, replace(), Json::Null, &plain(), rule);
    // Characters that are not in the vocabulary become one unknown token, or bytes.
    let mut unknown = tiny("unknown characters", BOTH);
    forget(&mut unknown.json, |entry| entry.starts_with("<0x"));
    let mut some_bytes = tiny("some bytes", BOTH);
    forget(&mut some_bytes.json, |entry| entry.starts_with("<0xE"));
    let mut no_digit = tiny("no digit", TOKENS_ONLY);
    forget(&mut no_digit.json, |entry| entry.contains('7') && !entry.starts_with("<0x"));
    let mut across_blanks = tiny("a merge across blanks", LINES);
    add_merge(&mut across_blanks.json, "b", "▁");
    let mut across_lines = tiny("a merge across line feeds", WORDS);
    add_merge(&mut across_lines.json, "\n", "a");
    let mut of_bytes = tiny("a merge of bytes", WORDS);
    forget(&mut of_bytes.json, |entry| entry.contains('\n'));
    add_merge(&mut of_bytes.json, "<0x0A>", "a");
    // Such entries are taken whole, though no merge reaches across the blank.
    let mut whole_entries = tiny("gaps that are entries", TOKENS_ONLY);
    add_entry(&mut whole_entries.json, "word▁word");
    whole_entries.json["model"]["ignore_merges"] = true.into();
    // A piece is looked up alone, so where pieces end at the cut this decides nothing.
    let mut whole_pieces =
        byte_level("qwen2, pieces that are entries", nfc(), byte_pieces(&[QWEN2]), &plain(), BOTH);
    add_entry(&mut whole_pieces.json, "Ġword");
    whole_pieces.json["model"]["ignore_merges"] = true.into();
    vec![unknown, some_bytes, no_digit, across_blanks, across_lines, of_bytes, whole_entries, whole_pieces]
}

fn replace() -> Json {
    json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
}
