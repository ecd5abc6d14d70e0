//! A prompt between its request and its ids: everything is known but the work of the tokenizer.
//!
//! ```text
//! PromptRequest ─▶ prepare ─▶ Prepared ─┬─ Text: encode ─▶ truncate ─┬▶ PromptTokens
//!                                       └─ Ids ──────────────────────┘
//! ```
//!
//! Two steps, so that a caller may take the ids of a text it has seen from its own memory of them.

use std::borrow::Cow;

use crate::error::PromptError;
use crate::tokenizer::{Encode, SpecialTokens, TokenIds, Truncation, encode_beginning, encode_truncated};

/// What [`ModelPrompt::prepare`](crate::ModelPrompt::prepare) makes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prepared<'a> {
    /// A text still to be encoded.
    Text(PreparedText<'a>),
    /// Nothing left to do: the client gave ids, or the model's renderer makes them.
    Ids(PromptTokens),
}

/// A text and how to encode it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedText<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) special: SpecialTokens,
    pub(crate) truncation: Truncation,
    pub(crate) whole: bool,
}

/// Token ids of a prompt, or of its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptTokens {
    pub ids: TokenIds,
    /// False: the ids stop before the first image, audio or video; the engine's prompt begins with them and goes on with
    /// tokens that are not known here.
    pub whole: bool,
}

// === impl PreparedText ===

impl PreparedText<'_> {
    /// The text whose ids are wanted, of at most [`MAX_PROMPT_BYTES`](crate::MAX_PROMPT_BYTES).
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn special_tokens(&self) -> SpecialTokens {
        self.special
    }

    /// Whether the ids of the text may have to be cut: then they are not the ids of the text alone.
    pub fn is_truncated(&self) -> bool {
        self.truncation != Truncation::None
    }

    /// See [`PromptTokens::whole`].
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    pub(crate) fn encode(&self, encoder: &dyn Encode) -> Result<PromptTokens, PromptError> {
        let ids = if self.whole {
            encode_truncated(encoder, &self.text, self.special, self.truncation)?
        } else {
            encode_beginning(encoder, &self.text, self.special)?
        };
        Ok(PromptTokens { ids: TokenIds::from(ids), whole: self.whole })
    }
}

// === impl Prepared ===

impl<'a> Prepared<'a> {
    /// The beginning of a text that is not known to its end, so that nothing can be said about cutting it.
    pub(crate) fn beginning(text: impl Into<Cow<'a, str>>, special: SpecialTokens) -> Self {
        let text = text.into();
        Prepared::Text(PreparedText { text, special, truncation: Truncation::None, whole: false })
    }

    pub(crate) fn whole_text(
        text: impl Into<Cow<'a, str>>,
        special: SpecialTokens,
        truncation: Truncation,
    ) -> Self {
        Prepared::Text(PreparedText { text: text.into(), special, truncation, whole: true })
    }
}

// === impl PromptTokens ===

impl PromptTokens {
    /// The ids of a whole prompt.
    pub fn whole(ids: impl Into<TokenIds>) -> Self {
        PromptTokens { ids: ids.into(), whole: true }
    }
}
