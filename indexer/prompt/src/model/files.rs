//! Bounded reading of a model's files.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde_json::{Map, Value as Json};

use crate::error::LoadError;

/// Names under which `tokenizer_config.json` gives special tokens; templates see them as variables.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The whole file, at most `limit` bytes. `remedy` says what to do where it is missing.
pub(super) fn read_bounded(path: &Path, limit: u64, remedy: &'static str) -> Result<Vec<u8>, LoadError> {
    let failed = |source: std::io::Error| match source.kind() {
        ErrorKind::NotFound => LoadError::Missing { path: path.to_owned(), remedy },
        _ => LoadError::Unreadable { path: path.to_owned(), source },
    };
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes > limit {
        return Err(LoadError::TooLarge { path: path.to_owned(), bytes, limit });
    }
    let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    // The file may grow meanwhile: the limit holds for what is read, too.
    file.take(limit).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}

/// The JSON object in a file; `None` where there is no such file.
pub(super) fn read_object(path: &Path, limit: u64) -> Result<Option<Map<String, Json>>, LoadError> {
    let bytes = match read_bounded(path, limit, "") {
        Ok(bytes) => bytes,
        Err(LoadError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| LoadError::BrokenJson { path: path.to_owned(), why: error.to_string() })
}

/// The special tokens that `tokenizer_config.json` names, each a text or an object with `content`.
pub(super) fn special_tokens(config: &Map<String, Json>) -> Vec<(&'static str, String)> {
    let text = |value: &Json| {
        let content = if value.is_object() { value.get("content")? } else { value };
        content.as_str().map(str::to_owned)
    };
    SPECIAL_TOKENS.iter().filter_map(|name| Some((*name, text(config.get(*name)?)?))).collect()
}
