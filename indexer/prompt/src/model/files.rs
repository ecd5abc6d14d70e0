//! Bounded reading of a model's files.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde_json::{Map, Value as Json};

use crate::error::LoadError;

/// Names under which `tokenizer_config.json` gives special tokens; templates see them as variables.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Names under which it gives special tokens of the model's kind, by names of their own: of older and of newer libraries.
const NAMED_SPECIAL_TOKENS: [&str; 2] = ["extra_special_tokens", "model_specific_special_tokens"];

/// A list of those that have no name.
const FURTHER_SPECIAL_TOKENS: &str = "additional_special_tokens";

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

/// A special token in `tokenizer_config.json`: a text, or an object with `content` and rules.
pub(super) struct NamedToken<'a>(pub(super) &'a Json);

/// The special tokens that `tokenizer_config.json` names, with their names where each has one of its own.
pub(super) fn named_tokens(config: &Map<String, Json>) -> Vec<(Option<&str>, NamedToken<'_>)> {
    let general = SPECIAL_TOKENS.iter().filter_map(|name| Some((Some(*name), config.get(*name)?)));
    let further = config.get(FURTHER_SPECIAL_TOKENS).and_then(Json::as_array);
    let further = further.into_iter().flatten().map(|token| (None, token));
    let named = NAMED_SPECIAL_TOKENS.iter().filter_map(|name| config.get(*name)?.as_object()).flatten();
    let named = named.map(|(name, token)| (Some(name.as_str()), token));
    general.chain(further).chain(named).map(|(name, token)| (name, NamedToken(token))).collect()
}

/// Those of them that templates see as variables.
pub(super) fn special_tokens(config: &Map<String, Json>) -> Vec<(String, String)> {
    let variable = |(name, token): &(Option<&str>, NamedToken<'_>)| {
        Some(((*name)?.to_owned(), token.content()?.to_owned()))
    };
    named_tokens(config).iter().filter_map(variable).collect()
}

// === impl NamedToken ===

impl NamedToken<'_> {
    pub(super) fn content(&self) -> Option<&str> {
        let content = if self.0.is_object() { self.0.get("content")? } else { self.0 };
        content.as_str()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn special_tokens_are_those_of_every_model_and_those_that_it_names() {
        let config = json!({
            "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null, "image_token": "no",
            "extra_special_tokens": {"image_token": "<image>", "audio_token": {"content": "<audio>"}, "odd": 1},
            "model_specific_special_tokens": {"boi_token": "<boi>"},
        });
        let found = special_tokens(config.as_object().unwrap());
        let found: Vec<_> = found.iter().map(|(name, token)| (name.as_str(), token.as_str())).collect();
        assert_eq!(
            found,
            [
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("image_token", "<image>"),
                ("audio_token", "<audio>"),
                ("boi_token", "<boi>"),
            ]
        );
        let list = json!({"extra_special_tokens": ["<a>"]});
        assert!(special_tokens(list.as_object().unwrap()).is_empty());
    }
}
