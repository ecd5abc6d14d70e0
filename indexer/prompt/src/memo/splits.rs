//! Split patterns whose pieces are known to end at the places of a cut rule.
//!
//! For a pattern to be here, each of its alternatives was read with these questions. Let the text be cut between two
//! characters, into a left and a right side.
//!
//! 1. Can a match hold both characters? If not, a piece ends there.
//! 2. Is the match that ends there the same when the right side is missing? It is where every repetition before it ends
//!    at the right side's first character anyway, and where nothing looks ahead across the cut.
//! 3. Are the matches of the right side the same when the left side is missing? They are where nothing looks behind.
//!
//! Between a letter or digit and a blank with a letter (`Blank`): letters, digits and contractions end before a blank in
//! every pattern, and a blank is taken in front of letters only.
//!
//! Between a line feed and a letter or digit (`Newline`): `\s*[\r\n]+` and what may follow punctuation (`[\r\n]*`,
//! `[\r\n/]*`) end with the line feed, the character in front of letters (`[^\r\n…]?`) is none, and the white space that
//! ends in the line feed is taken whole by `\s*[\r\n]+` before `\s+(?!\S)`, the only one that looks ahead, is asked.
//! Where `\s+(?!\S)` is asked first, as in GPT-2's pattern, it takes more of the white space when nothing follows.

use serde_json::Value as Json;

/// Up to the pattern of contractions, those of GPT-4 and its many relatives.
const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// With marks among the letters.
const QWEN3_5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Mistral's.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Three passes: the first two take out numbers and Chinese and Japanese characters, each a piece; so in the third no
/// letter stands after a digit. In it a character that belongs to no alternative stands in no match and ends one.
const DEEPSEEK_V3: [&str; 3] = [
    r"\p{N}{1,3}",
    "[一-龥\u{3040}-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
];

/// The sequences of patterns in front of a byte-level step that splits nothing itself. All allow both cuts.
const KNOWN: [&[&str]; 6] = [&[CL100K], &[QWEN2], &[QWEN3_5], &[O200K], &[TEKKEN], &DEEPSEEK_V3];

/// What the pieces of a byte-level pre-tokenizer are known to end at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceEnds {
    BlankAndNewline,
    Blank,
}

/// `steps`: the pre-tokenizers in their order.
///
/// # Errors
/// The name of a step that is not known here.
pub(super) fn piece_ends(steps: &[&Json]) -> Result<PieceEnds, String> {
    let name = |step: &Json| step.get("type").and_then(Json::as_str).unwrap_or("without a type").to_owned();
    let Some((last, splits)) = steps.split_last() else { return Err("none".into()) };
    let is = |step: &Json, field: &str, value: bool| step.get(field).and_then(Json::as_bool) == Some(value);
    if name(last) != "ByteLevel" || !is(last, "add_prefix_space", false) {
        return Err(name(last));
    }
    // GPT-2's pattern; its relatives take out the digits first.
    let splits_itself = !is(last, "use_regex", false);
    if splits_itself {
        return match splits.iter().find(|step| name(step) != "Digits") {
            None => Ok(PieceEnds::Blank),
            Some(other) => Err(format!("{} before the pattern of GPT-2", name(other))),
        };
    }
    let mut patterns = Vec::new();
    for step in splits {
        let pattern = step.get("pattern").and_then(|pattern| pattern.get("Regex")).and_then(Json::as_str);
        let isolates = step.get("behavior").and_then(Json::as_str) == Some("Isolated");
        match pattern {
            Some(pattern) if name(step) == "Split" && isolates && is(step, "invert", false) => {
                patterns.push(pattern);
            }
            _ => return Err(name(step)),
        }
    }
    if KNOWN.contains(&patterns.as_slice()) {
        Ok(PieceEnds::BlankAndNewline)
    } else {
        Err("Split with an unknown pattern".into())
    }
}
