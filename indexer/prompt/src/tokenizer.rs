//! Text → token ids, as the engine's own tokenizer makes them.
//!
//! [`Encode`] is what the rest of the crate knows of an encoder. [`HuggingFace`] is the reference; faster ones stand
//! beside it, and [`Loaded::choose`] takes one of them for a model only after `tokenizer/self_check.rs` has compared its ids with
//! the reference's. Truncation lives in `tokenizer/truncation.rs` and works with any of them.

mod choice;
mod fastokens;
mod hugging_face;
mod self_check;
mod splintr;
mod truncation;

pub(crate) use choice::{Chosen, Loaded};
pub use choice::{EncoderChoice, EncoderKind};
pub(crate) use hugging_face::HuggingFace;
pub(crate) use truncation::{ModelLength, Truncation, encode_beginning, encode_truncated, frame};

/// Token ids of one prompt, in the model's vocabulary, in prompt order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenIds(Vec<u32>);

/// Whether the tokenizer puts its own tokens (BOS, EOS) around the text. Special tokens written inside the text are
/// parsed as such either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    Add,
    Omit,
}

/// Why a text could not be encoded. Carries no text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct EncodeError(pub String);

/// An encoder for one model. Deterministic, and free of state that a caller could see.
pub trait Encode: Send + Sync {
    /// Ids of `text`, never truncated.
    fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, EncodeError>;
}

// === impl TokenIds ===

impl TokenIds {
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    pub fn into_vec(self) -> Vec<u32> {
        self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Vec<u32>> for TokenIds {
    fn from(ids: Vec<u32>) -> Self {
        TokenIds(ids)
    }
}

impl AsRef<[u32]> for TokenIds {
    fn as_ref(&self) -> &[u32] {
        &self.0
    }
}

// === impl SpecialTokens ===

impl From<bool> for SpecialTokens {
    /// From the request's `add_special_tokens`.
    fn from(add: bool) -> Self {
        if add { SpecialTokens::Add } else { SpecialTokens::Omit }
    }
}
