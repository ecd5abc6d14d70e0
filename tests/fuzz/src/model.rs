//! What the checks of prompts share: the tiny models of `model/`, and what must hold of a prompt whichever request it is of.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::Value as Json;
use warmpath_prompt::{
    Fold, MAX_PROMPT_BYTES, Memo, ModelPrompt, Prepared, PreparedText, PromptError, PromptTokens, Tenant,
};

/// The smallest parts, so that texts of some ten bytes have several.
const PART_BYTES_MIN: usize = 8;

/// Of a memory that has room for all parts of a text.
const MEMO_BYTES: usize = 64 << 20;

/// What each token stands for, in both tokenizers: they differ in their special tokens only.
static TOKENS: LazyLock<HashMap<u32, Vec<u8>>> = LazyLock::new(|| {
    let mut tokens = tokens_of(&folder());
    tokens.extend(tokens_of(&harmony_folder()));
    tokens
});

/// Ids as they are.
struct Ids;

// === impl Ids ===

impl Fold for Ids {
    type State = ();
    type Part = Vec<u32>;

    fn identify(&self, _: &mut Vec<u8>) {}

    fn begin(&self) {}

    fn fold(&self, (): &mut (), ids: &[u32]) -> Vec<u32> {
        ids.to_vec()
    }

    fn owned_bytes((): &(), ids: &Vec<u32>) -> usize {
        size_of_val(ids.as_slice())
    }
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("model")
}

/// With the special tokens of the harmony encoding.
pub(crate) fn harmony_folder() -> PathBuf {
    folder().join("harmony")
}

fn tokens_of(folder: &Path) -> HashMap<u32, Vec<u8>> {
    let json = std::fs::read(folder.join("tokenizer.json")).unwrap_or_default();
    let json: Json = serde_json::from_slice(&json).unwrap_or_default();
    let id = |value: &Json| value.as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(u32::MAX);
    let vocabulary = json.pointer("/model/vocab").and_then(Json::as_object);
    let words = vocabulary.into_iter().flatten().map(|(word, number)| (id(number), bytes_of(word)));
    let added = json.pointer("/added_tokens").and_then(Json::as_array);
    let added = added.into_iter().flatten().filter_map(|token| {
        Some((id(token.get("id")?), token.get("content")?.as_str()?.as_bytes().to_vec()))
    });
    words.chain(added).collect()
}

/// Byte-level vocabularies write a byte as a character of its own: printable Latin-1 as itself, the others from U+0100 on.
fn bytes_of(word: &str) -> Vec<u8> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let others: Vec<u8> = (0..=u8::MAX).filter(|byte| !printable(byte)).collect();
    let byte = |char: char| match u8::try_from(char).ok().filter(printable) {
        Some(byte) => Some(byte),
        None => others.get(usize::try_from(u32::from(char).checked_sub(0x100)?).ok()?).copied(),
    };
    word.chars().filter_map(byte).collect()
}

/// Checks a prompt that was made twice of the same request. `text`: what it reads like, where that is known besides.
pub(crate) fn check_prompt(
    model: &ModelPrompt,
    [prepared, again]: [Result<Prepared<'_>, PromptError>; 2],
    text: Option<&str>,
) {
    assert_eq!(prepared, again);
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            assert!(PromptError::REASONS.contains(&error.reason()), "{error}");
            return;
        }
    };
    match prepared {
        Prepared::Ids(tokens) => {
            if let Some(text) = text {
                assert_same(&written(&tokens), text.as_bytes());
            }
        }
        Prepared::Text(prepared) => {
            assert!(prepared.text().len() <= MAX_PROMPT_BYTES, "{} bytes", prepared.text().len());
            if let Ok(tokens) = model.encode(Prepared::Text(prepared.clone())) {
                check_tokens(&prepared, &tokens);
                check_memo(model, &prepared, &tokens);
            }
        }
    }
}

fn check_tokens(text: &PreparedText<'_>, tokens: &PromptTokens) {
    let written = written(tokens);
    if text.is_truncated() {
        assert!(
            text.text().as_bytes().ends_with(&written),
            "{} is no end of the text",
            written.escape_ascii()
        );
    } else {
        assert_same(&written, text.text().as_bytes());
    }
}

/// Neither a memory that is empty nor one that has seen the text changes its ids.
fn check_memo(model: &ModelPrompt, text: &PreparedText<'_>, tokens: &PromptTokens) {
    let memo = Memo::with_parts_of(PART_BYTES_MIN, [7; 16], MEMO_BYTES);
    for _ in 0..2 {
        let folded = model.fold(Prepared::Text(text.clone()), &memo, Tenant::Common, &Ids);
        let ids = folded.map(|folded| folded.parts().flatten().copied().collect::<Vec<_>>());
        assert_eq!(ids.as_deref(), Ok(tokens.ids.as_slice()));
    }
}

fn written(tokens: &PromptTokens) -> Vec<u8> {
    tokens.ids.as_slice().iter().filter_map(|id| TOKENS.get(id)).flatten().copied().collect()
}

fn assert_same(written: &[u8], text: &[u8]) {
    assert_eq!(written.escape_ascii().to_string(), text.escape_ascii().to_string());
}
