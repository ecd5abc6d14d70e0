//! The reference encoder: the library that the engine itself runs.

use std::path::Path;

use tokenizers::{AddedToken, Tokenizer};

use super::{Encode, EncodeError, SpecialTokens};
use crate::error::LoadError;

/// A tokenizer.json, loaded. Holds 60 to 260 MB for the vocabularies in use; loading takes 0.3 to 1 s.
pub(crate) struct HuggingFace {
    tokenizer: Tokenizer,
}

// === impl HuggingFace ===

impl HuggingFace {
    /// `json` is the content of the tokenizer.json at `path`, which errors name.
    pub(crate) fn load(path: &Path, json: &[u8]) -> Result<Self, LoadError> {
        // Parsed twice on failure only: the tokenizer's own error loses the position of a syntax fault.
        let mut tokenizer = Tokenizer::from_bytes(json).map_err(|error| {
            match serde_json::from_slice::<serde::de::IgnoredAny>(json) {
                Err(syntax) => LoadError::BrokenJson { path: path.to_owned(), why: syntax.to_string() },
                Ok(_) => LoadError::UnusableTokenizer { path: path.to_owned(), why: error.to_string() },
            }
        })?;
        // The engine sets both per call, so what the file says of them must not apply.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| LoadError::UnusableTokenizer {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
        Ok(HuggingFace { tokenizer })
    }

    /// The id of `token`, an added token or an entry of the vocabulary.
    pub(crate) fn token_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// The added tokens with the rules by which they are found in a text.
    pub(crate) fn added_token_rules(&self) -> impl Iterator<Item = AddedToken> {
        self.tokenizer.get_added_tokens_decoder().into_values()
    }

    /// The texts of the added tokens, special ones and others, in the order of their ids.
    pub(crate) fn added_tokens(&self) -> Vec<String> {
        let mut tokens: Vec<_> = self.tokenizer.get_added_tokens_decoder().into_iter().collect();
        tokens.sort_by_key(|(id, _)| *id);
        tokens.into_iter().map(|(_, token)| token.content).collect()
    }
}

impl Encode for HuggingFace {
    fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, EncodeError> {
        let encoding = self
            .tokenizer
            .encode_fast(text, special == SpecialTokens::Add)
            .map_err(|error| EncodeError(error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }
}
