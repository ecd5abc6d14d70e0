//! Truncation as the engine does it: the last n tokens stay.
//!
//! A text that gets special tokens keeps them: room is reserved, so n = 50 on a model with BOS gives BOS and the last
//! 49. A prompt without special tokens (chat, token ids) is cut plainly; a chat loses the BOS that its template wrote.

use super::{Encode, EncodeError, SpecialTokens};
use crate::error::PromptError;

/// The request's `truncate_prompt_tokens`, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truncation {
    None,
    /// Keep the last n tokens.
    KeepLast(usize),
}

// === impl Truncation ===

impl Truncation {
    /// `requested` as in the body. -1 means as much as the model takes, which depends on the output budget of the
    /// request and on the engine's release; it is exact only as long as nothing has to be cut, which
    /// [`apply`](Self::cut) cannot know without the model's length.
    pub(crate) fn resolve(requested: Option<i64>, max_model_len: Option<usize>) -> Result<Self, PromptError> {
        const FIELD: &str = "truncate_prompt_tokens";
        match requested {
            None => Ok(Truncation::None),
            Some(-1) => match max_model_len {
                // The engine keeps one token back for output where it generates at all.
                Some(len) => Ok(Truncation::KeepLast(len.saturating_sub(1))),
                None => Err(PromptError::unsupported(
                    FIELD,
                    "is -1, which needs the model's length; set max_model_len of the model",
                )),
            },
            Some(n) => {
                let n = usize::try_from(n)
                    .map_err(|_| PromptError::refused(format!("{FIELD} is {n}, expected -1 or more")))?;
                match max_model_len {
                    Some(len) if n > len => Err(PromptError::refused(format!(
                        "{FIELD} is {n}, more than the model's length of {len}"
                    ))),
                    _ => Ok(Truncation::KeepLast(n)),
                }
            }
        }
    }

    /// Cuts ids that carry no special tokens of the tokenizer's.
    pub(crate) fn cut(self, mut ids: Vec<u32>) -> Vec<u32> {
        if let Truncation::KeepLast(keep) = self {
            let surplus = ids.len().saturating_sub(keep);
            ids.drain(..surplus);
        }
        ids
    }
}

/// Encodes `text` and truncates it.
pub(crate) fn encode_truncated(
    encoder: &dyn Encode,
    text: &str,
    special: SpecialTokens,
    truncation: Truncation,
) -> Result<Vec<u32>, EncodeError> {
    let ids = encoder.encode(text, special)?;
    let Truncation::KeepLast(keep) = truncation else { return Ok(ids) };
    if ids.len() <= keep {
        return Ok(ids);
    }
    if special == SpecialTokens::Omit {
        return Ok(truncation.cut(ids));
    }
    let bare = encoder.encode(text, SpecialTokens::Omit)?;
    let (prefix, suffix) = frame(&ids, &bare).ok_or_else(|| {
        EncodeError("its special tokens stand inside the text, so it cannot be truncated".into())
    })?;
    let room = keep.saturating_sub(prefix.len() + suffix.len());
    let mut kept = prefix.to_vec();
    kept.extend(Truncation::KeepLast(room).cut(bare));
    kept.extend_from_slice(suffix);
    Ok(kept)
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
        assert_eq!(truncated(false, "abc", SpecialTokens::Omit, 0), [0u32; 0]);
    }

    #[test]
    fn text_that_begins_like_a_special_token_keeps_the_real_one() {
        assert_eq!(truncated(false, "\u{1}\u{1}b", SpecialTokens::Add, 2), [1, 98]);
    }

    #[test]
    fn minus_one_needs_the_length_of_the_model() {
        assert_eq!(Truncation::resolve(Some(-1), Some(2048)), Ok(Truncation::KeepLast(2047)));
        let error = Truncation::resolve(Some(-1), None).unwrap_err();
        assert_eq!(error.reason(), "unsupported_field");
        assert!(error.to_string().contains("max_model_len"), "{error}");
    }

    #[test]
    fn counts_that_the_engine_refuses_are_refused() {
        assert_eq!(Truncation::resolve(Some(-2), None).unwrap_err().reason(), "refused");
        assert_eq!(Truncation::resolve(Some(2049), Some(2048)).unwrap_err().reason(), "refused");
        assert_eq!(Truncation::resolve(Some(2048), Some(2048)), Ok(Truncation::KeepLast(2048)));
        assert_eq!(Truncation::resolve(None, None), Ok(Truncation::None));
    }
}
