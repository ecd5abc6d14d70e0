//! `/v1/completions`: the text as it stands, with the tokenizer's special tokens unless told otherwise.

use crate::error::PromptError;
use crate::limits::MAX_PROMPT_BYTES;
use crate::tokenizer::{Encode, SpecialTokens, TokenIds, Truncation, encode_truncated};

/// `special`: the engine's default for completions is [`SpecialTokens::Add`].
pub(crate) fn encode(
    encoder: &dyn Encode,
    text: &str,
    special: SpecialTokens,
    truncation: Truncation,
) -> Result<TokenIds, PromptError> {
    if text.len() > MAX_PROMPT_BYTES {
        return Err(PromptError::TooLarge { what: "prompt", bytes: text.len(), limit: MAX_PROMPT_BYTES });
    }
    encode_truncated(encoder, text, special, truncation).map(TokenIds::from)
}
