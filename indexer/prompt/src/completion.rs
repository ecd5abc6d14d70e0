//! `/v1/completions`: the text as it stands, with the tokenizer's special tokens unless told otherwise.

use crate::error::PromptError;
use crate::limits::MAX_PROMPT_BYTES;
use crate::prepared::Prepared;
use crate::request::CompletionRequest;
use crate::tokenizer::{SpecialTokens, Truncation};

pub(crate) fn prepare<'a>(
    request: &CompletionRequest<'a>,
    truncation: Truncation,
) -> Result<Prepared<'a>, PromptError> {
    if request.text.len() > MAX_PROMPT_BYTES {
        return Err(PromptError::too_large("prompt"));
    }
    let special = request.add_special_tokens.map_or(SpecialTokens::Add, SpecialTokens::from);
    Ok(Prepared::whole_text(request.text, special, truncation))
}
