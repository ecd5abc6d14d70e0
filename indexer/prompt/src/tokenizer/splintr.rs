//! [`::splintr`]: ten to fifty times as fast as the reference, for models that fastokens refuses.

use ::splintr::AnyTokenizer;

use super::{Encode, EncodeError, SpecialTokens};

/// A tokenizer.json, loaded. Encodes on the calling thread; never truncates or pads.
pub(super) struct Splintr {
    tokenizer: AnyTokenizer,
}

// === impl Splintr ===

impl Splintr {
    /// `json` is the content of a tokenizer.json.
    pub(super) fn load(json: &[u8]) -> Result<Self, String> {
        let tokenizer = ::splintr::from_json_bytes(json).map_err(|error| error.to_string())?;
        Ok(Splintr { tokenizer })
    }
}

impl Encode for Splintr {
    fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, EncodeError> {
        Ok(match special {
            SpecialTokens::Add => self.tokenizer.encode(text),
            SpecialTokens::Omit => self.tokenizer.encode_raw(text),
        })
    }
}
