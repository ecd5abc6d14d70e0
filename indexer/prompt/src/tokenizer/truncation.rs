//! Truncation as the engine does it: the last n tokens stay.
//!
//! A text that gets special tokens keeps them: room is reserved, so n = 50 on a model with BOS gives BOS and the last
//! 49. A prompt without special tokens (chat, token ids) is cut plainly; a chat loses the BOS that its template wrote.

use super::{Encode, EncodeError, SpecialTokens};
use crate::error::PromptError;
use crate::request::Truncate;

const FIELD: &str = "truncate_prompt_tokens";

/// What is known of a model's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelLength {
    /// The engine's `--max-model-len`, in tokens.
    pub max_model_len: Option<usize>,
    /// Whether -1 leaves room for the request's output, whose budget is not known here.
    pub fit_reserves_output: bool,
}

/// The request's `truncate_prompt_tokens`, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truncation {
    None,
    /// Keep the last n tokens, n > 0.
    KeepLast(usize),
    /// Keep as many as the model takes, but at least so many: a longer prompt may or may not be cut, depending on the
    /// request's output budget.
    Fit {
        kept_in_any_case: usize,
    },
}

// === impl Truncation ===

impl Truncation {
    /// `requested` as in the body: the number of tokens to keep, -1 for as many as the model takes.
    pub(crate) fn resolve(requested: Truncate, length: ModelLength) -> Result<Self, PromptError> {
        match (requested.tokens, length.max_model_len) {
            (None, _) => Ok(Truncation::None),
            (Some(-1), None) => Err(PromptError::unsupported(
                FIELD,
                "is -1, which needs the model's length; set max_model_len of the model",
            )),
            (Some(-1), Some(_)) if length.fit_reserves_output => Err(PromptError::unsupported(
                FIELD,
                "is -1, which this engine release derives from max_tokens",
            )),
            // One token may be kept back for output.
            (Some(-1), Some(limit)) => Ok(Truncation::Fit { kept_in_any_case: limit.saturating_sub(1) }),
            (Some(requested), limit) => match usize::try_from(requested) {
                Ok(0) => Err(PromptError::refused(format!("{FIELD} is 0, which leaves nothing"))),
                Ok(keep) if limit.is_none_or(|limit| keep <= limit) => Ok(Truncation::KeepLast(keep)),
                Ok(_) => Err(PromptError::refused(format!("{FIELD} is more than the model's length"))),
                Err(_) => Err(PromptError::refused(format!("{FIELD} is {requested}, expected -1 or more"))),
            },
        }
    }

    /// Cuts ids that carry no special tokens of the tokenizer's.
    pub(crate) fn cut(self, mut ids: Vec<u32>) -> Result<Vec<u32>, PromptError> {
        match self {
            Truncation::None => {}
            Truncation::KeepLast(keep) => keep_last(&mut ids, keep),
            Truncation::Fit { kept_in_any_case } if ids.len() <= kept_in_any_case => {}
            Truncation::Fit { .. } => {
                return Err(PromptError::unsupported(FIELD, "is -1 and the prompt may have to be cut"));
            }
        }
        Ok(ids)
    }
}

fn keep_last(ids: &mut Vec<u32>, keep: usize) {
    let surplus = ids.len().saturating_sub(keep);
    ids.drain(..surplus);
}

/// Encodes `text` and truncates it.
pub(crate) fn encode_truncated(
    encoder: &dyn Encode,
    text: &str,
    special: SpecialTokens,
    truncation: Truncation,
) -> Result<Vec<u32>, PromptError> {
    let failed = |error: EncodeError| PromptError::Encoder { why: error.to_string() };
    let ids = encoder.encode(text, special).map_err(failed)?;
    match (special, truncation) {
        (SpecialTokens::Add, Truncation::KeepLast(keep)) if ids.len() > keep => {
            let mut bare = encoder.encode(text, SpecialTokens::Omit).map_err(failed)?;
            let (prefix, suffix) = frame(&ids, &bare).ok_or_else(|| PromptError::Encoder {
                why: "the special tokens stand inside the text, so it cannot be truncated".into(),
            })?;
            keep_last(&mut bare, keep.saturating_sub(prefix.len() + suffix.len()));
            Ok([prefix, &bare, suffix].concat())
        }
        _ => truncation.cut(ids),
    }
}

/// The special tokens before and after `bare` in `framed`: what the tokenizer's post-processor put there.
fn frame<'a>(framed: &'a [u32], bare: &[u32]) -> Option<(&'a [u32], &'a [u32])> {
    let added = framed.len().checked_sub(bare.len())?;
    (0..=added).rev().find_map(|before| {
        let (prefix, rest) = framed.split_at_checked(before)?;
        let suffix = rest.strip_prefix(bare)?;
        Some((prefix, suffix))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One token per byte, framed by 1 (BOS) and 2 (EOS) as far as `suffix` says so.
    struct Bytes {
        suffix: bool,
    }

    impl Encode for Bytes {
        fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, EncodeError> {
            let mut ids: Vec<u32> = text.bytes().map(u32::from).collect();
            if special == SpecialTokens::Add {
                ids.insert(0, 1);
                if self.suffix {
                    ids.push(2);
                }
            }
            Ok(ids)
        }
    }

    fn resolve(tokens: Option<i64>, length: ModelLength) -> Result<Truncation, PromptError> {
        Truncation::resolve(Truncate { tokens }, length)
    }

    const UNKNOWN: ModelLength = ModelLength { max_model_len: None, fit_reserves_output: false };
    const KNOWN: ModelLength = ModelLength { max_model_len: Some(2048), fit_reserves_output: false };

    fn truncated(suffix: bool, text: &str, special: SpecialTokens, keep: usize) -> Vec<u32> {
        encode_truncated(&Bytes { suffix }, text, special, Truncation::KeepLast(keep)).unwrap()
    }

    #[test]
    fn last_tokens_stay_and_special_ones_keep_their_room() {
        let (a, b, c) = (97, 98, 99);
        assert_eq!(truncated(false, "abc", SpecialTokens::Omit, 2), [b, c]);
        assert_eq!(truncated(false, "abc", SpecialTokens::Add, 3), [1, b, c]);
        assert_eq!(truncated(true, "abc", SpecialTokens::Add, 3), [1, c, 2]);
        assert_eq!(truncated(true, "abc", SpecialTokens::Add, 5), [1, a, b, c, 2]);
        assert_eq!(truncated(true, "abc", SpecialTokens::Add, 99), [1, a, b, c, 2]);
    }

    #[test]
    fn text_that_begins_like_a_special_token_keeps_the_real_one() {
        assert_eq!(truncated(false, "\u{1}\u{1}b", SpecialTokens::Add, 2), [1, 98]);
    }

    #[test]
    fn minus_one_is_exact_only_where_nothing_can_be_cut() {
        let fit = resolve(Some(-1), KNOWN).unwrap();
        assert_eq!(fit, Truncation::Fit { kept_in_any_case: 2047 });
        assert_eq!(fit.cut(vec![7; 2047]), Ok(vec![7; 2047]));
        assert_eq!(fit.cut(vec![7; 2048]).unwrap_err().reason(), "unsupported_field");
        let error = resolve(Some(-1), UNKNOWN).unwrap_err();
        assert_eq!(error.reason(), "unsupported_field");
        assert!(error.to_string().contains("max_model_len"), "{error}");
        let old = ModelLength { fit_reserves_output: true, ..KNOWN };
        assert_eq!(resolve(Some(-1), old).unwrap_err().reason(), "unsupported_field");
    }

    #[test]
    fn counts_that_the_engine_refuses_are_refused() {
        for (requested, length) in [(-2, UNKNOWN), (i64::MIN, UNKNOWN), (0, UNKNOWN), (2049, KNOWN)] {
            assert_eq!(resolve(Some(requested), length).unwrap_err().reason(), "bad_prompt");
        }
        assert_eq!(resolve(Some(2048), KNOWN), Ok(Truncation::KeepLast(2048)));
        assert_eq!(resolve(None, UNKNOWN), Ok(Truncation::None));
    }
}
