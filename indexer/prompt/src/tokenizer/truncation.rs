//! Truncation as the engine does it: n tokens stay, the last ones where it generates, the first ones where it embeds.
//!
//! A text that gets special tokens keeps them: room is reserved, so n = 50 on a model with BOS gives BOS and the last
//! 49. A prompt without special tokens (chat, token ids) is cut plainly; a chat loses the BOS that its template wrote.
//! So is any prompt whose request names the side: the engine then encodes all of it and cuts the ids.

use super::{Encode, EncodeError, SpecialTokens};
use crate::error::PromptError;
use crate::task::{Task, Truncate, TruncationSide};

const FIELD: &str = "truncate_prompt_tokens";
const SIDE_FIELD: &str = "truncation_side";

/// What is known of a model's length, and of what its engine does at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelLength {
    /// The engine's `--max-model-len`, in tokens.
    pub max_model_len: Option<usize>,
    /// Whether -1 leaves room for the request's output.
    pub fit_reserves_output: bool,
    /// Whether the engine reads the side from requests that generate, and from those that embed.
    pub reads_side: bool,
    pub reads_embedding_side: bool,
}

/// The request's `truncate_prompt_tokens`, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truncation {
    None,
    Keep(Keep),
    /// Keep as many as the model takes, but at least so many: a longer prompt may or may not be cut.
    Fit {
        kept_in_any_case: usize,
    },
}

/// A number of tokens that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    /// More than 0.
    pub tokens: usize,
    pub end: End,
    /// Special tokens have their room before anything else. Otherwise they are cut like any token.
    pub reserves_special: bool,
    /// Tokens from which on the engine may cut the text before it encodes it.
    pub text_limit: Option<usize>,
}

/// The end of a prompt that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    First,
    Last,
}

// === impl Truncation ===

impl Truncation {
    pub(crate) fn resolve(requested: Truncate, task: Task, length: ModelLength) -> Result<Self, PromptError> {
        let side = read_side(requested.side, task, length)?;
        match (requested.tokens, length.max_model_len) {
            (None, _) => Ok(Truncation::None),
            (Some(-1), limit) => fit(requested.max_output_tokens, task, length, limit),
            (Some(requested), limit) => match usize::try_from(requested) {
                Ok(0) => Err(PromptError::refused(format!("{FIELD} is 0, which leaves nothing"))),
                Ok(tokens) if limit.is_none_or(|limit| tokens <= limit) => Ok(Truncation::Keep(Keep {
                    tokens,
                    end: side.unwrap_or(match task {
                        Task::Generate => End::Last,
                        Task::Embed => End::First,
                    }),
                    reserves_special: side.is_none(),
                    text_limit: side.and(limit),
                })),
                Ok(_) => Err(PromptError::refused(format!("{FIELD} is more than the model's length"))),
                Err(_) => Err(PromptError::refused(format!("{FIELD} is {requested}, expected -1 or more"))),
            },
        }
    }

    /// Cuts ids that carry no special tokens of the tokenizer's, or none that have room of their own.
    pub(crate) fn cut(self, ids: Vec<u32>) -> Result<Vec<u32>, PromptError> {
        match self {
            Truncation::None => Ok(ids),
            Truncation::Keep(keep) if keep.text_limit.is_some_and(|limit| ids.len() > limit) => {
                Err(PromptError::unsupported(
                    SIDE_FIELD,
                    "is set and the prompt is longer than the model's length",
                ))
            }
            Truncation::Keep(keep) => Ok(keep.cut(ids, keep.tokens)),
            Truncation::Fit { kept_in_any_case } if ids.len() <= kept_in_any_case => Ok(ids),
            Truncation::Fit { .. } => {
                Err(PromptError::unsupported(FIELD, "is -1 and the prompt may have to be cut"))
            }
        }
    }
}

/// The side that stays, where the request says so and the engine reads it.
fn read_side(
    side: Option<TruncationSide>,
    task: Task,
    length: ModelLength,
) -> Result<Option<End>, PromptError> {
    let is_read = match task {
        Task::Generate => length.reads_side,
        Task::Embed => length.reads_embedding_side,
    };
    match side.filter(|_| is_read) {
        None => Ok(None),
        Some(TruncationSide::Left) => Ok(Some(End::Last)),
        Some(TruncationSide::Right) => Ok(Some(End::First)),
        Some(TruncationSide::Unknown) => {
            Err(PromptError::refused(format!("{SIDE_FIELD} is neither \"left\" nor \"right\"")))
        }
    }
}

/// As many tokens as the model takes.
fn fit(
    max_output_tokens: Option<u32>,
    task: Task,
    length: ModelLength,
    limit: Option<usize>,
) -> Result<Truncation, PromptError> {
    let limit = limit.ok_or_else(|| {
        PromptError::unsupported(
            FIELD,
            "is -1, which needs the model's length; set max_model_len of the model",
        )
    })?;
    let reserved = match (task, length.fit_reserves_output, max_output_tokens) {
        (Task::Embed, _, _) => 0,
        // One token may be kept back for output.
        (Task::Generate, false, _) => 1,
        (Task::Generate, true, Some(tokens)) => usize::try_from(tokens).unwrap_or(usize::MAX),
        (Task::Generate, true, None) => {
            return Err(PromptError::unsupported(
                FIELD,
                "is -1, which this engine release derives from max_tokens",
            ));
        }
    };
    Ok(Truncation::Fit { kept_in_any_case: limit.saturating_sub(reserved) })
}

// === impl Keep ===

impl Keep {
    fn cut(self, mut ids: Vec<u32>, tokens: usize) -> Vec<u32> {
        match self.end {
            End::First => ids.truncate(tokens),
            End::Last => drop(ids.drain(..ids.len().saturating_sub(tokens))),
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
) -> Result<Vec<u32>, PromptError> {
    let ids = encode(encoder, text, special)?;
    match (special, truncation) {
        (SpecialTokens::Add, Truncation::Keep(keep)) if keep.reserves_special && ids.len() > keep.tokens => {
            let bare = encode(encoder, text, SpecialTokens::Omit)?;
            let (prefix, suffix) = frame(&ids, &bare).ok_or_else(stands_inside)?;
            let room = keep.tokens.saturating_sub(prefix.len() + suffix.len());
            let kept = keep.cut(bare.clone(), room);
            Ok([prefix, &kept, suffix].concat())
        }
        _ => truncation.cut(ids),
    }
}

/// Encodes a text that is the beginning of a longer one: nothing that the tokenizer puts after a text.
pub(crate) fn encode_beginning(
    encoder: &dyn Encode,
    text: &str,
    special: SpecialTokens,
) -> Result<Vec<u32>, PromptError> {
    let bare = encode(encoder, text, SpecialTokens::Omit)?;
    if special == SpecialTokens::Omit {
        return Ok(bare);
    }
    let framed = encode(encoder, text, SpecialTokens::Add)?;
    let (prefix, _) = frame(&framed, &bare).ok_or_else(stands_inside)?;
    Ok([prefix, &bare].concat())
}

fn encode(encoder: &dyn Encode, text: &str, special: SpecialTokens) -> Result<Vec<u32>, PromptError> {
    encoder
        .encode(text, special)
        .map_err(|error: EncodeError| PromptError::Encoder { why: error.to_string() })
}

fn stands_inside() -> PromptError {
    PromptError::Encoder { why: "the special tokens stand inside the text, so it cannot be cut".into() }
}

/// The special tokens before and after `bare` in `framed`: what the tokenizer's post-processor put there.
pub(crate) fn frame<'a>(framed: &'a [u32], bare: &[u32]) -> Option<(&'a [u32], &'a [u32])> {
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
        Truncation::resolve(Truncate { tokens, ..Truncate::default() }, Task::Generate, length)
    }

    const UNKNOWN: ModelLength = ModelLength {
        max_model_len: None,
        fit_reserves_output: false,
        reads_side: true,
        reads_embedding_side: true,
    };
    const KNOWN: ModelLength = ModelLength { max_model_len: Some(2048), ..UNKNOWN };
    const PLAIN: Keep = Keep { tokens: 0, end: End::Last, reserves_special: true, text_limit: None };

    fn truncated(suffix: bool, text: &str, special: SpecialTokens, keep: usize) -> Vec<u32> {
        encode_truncated(&Bytes { suffix }, text, special, Truncation::Keep(Keep { tokens: keep, ..PLAIN }))
            .unwrap()
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
        let known = Truncate { tokens: Some(-1), max_output_tokens: Some(48), ..Truncate::default() };
        let fit = Truncation::resolve(known, Task::Generate, old);
        assert_eq!(fit, Ok(Truncation::Fit { kept_in_any_case: 2000 }));
        let fit = Truncation::resolve(known, Task::Embed, old);
        assert_eq!(fit, Ok(Truncation::Fit { kept_in_any_case: 2048 }));
    }

    #[test]
    fn counts_that_the_engine_refuses_are_refused() {
        for (requested, length) in [(-2, UNKNOWN), (i64::MIN, UNKNOWN), (0, UNKNOWN), (2049, KNOWN)] {
            assert_eq!(resolve(Some(requested), length).unwrap_err().reason(), "bad_prompt");
        }
        assert_eq!(resolve(Some(2048), KNOWN), Ok(Truncation::Keep(Keep { tokens: 2048, ..PLAIN })));
        assert_eq!(resolve(None, UNKNOWN), Ok(Truncation::None));
    }

    #[test]
    fn side_of_the_request_cuts_special_tokens_too() {
        let (a, b, c) = (97, 98, 99);
        let cut = |side: Option<&str>, task| {
            let side = side.map(TruncationSide::from);
            let truncate = Truncate { tokens: Some(3), side, ..Truncate::default() };
            let truncation = Truncation::resolve(truncate, task, UNKNOWN).unwrap();
            encode_truncated(&Bytes { suffix: true }, "abc", SpecialTokens::Add, truncation).unwrap()
        };
        assert_eq!(cut(None, Task::Generate), [1, c, 2]);
        assert_eq!(cut(Some("left"), Task::Generate), [b, c, 2]);
        assert_eq!(cut(Some("right"), Task::Generate), [1, a, b]);
        assert_eq!(cut(None, Task::Embed), [1, a, 2]);
        assert_eq!(cut(Some("left"), Task::Embed), [b, c, 2]);
    }

    #[test]
    fn side_counts_only_where_the_engine_reads_it() {
        let truncate =
            |side: &str| Truncate { tokens: Some(3), side: Some(side.into()), ..Truncate::default() };
        let old = ModelLength { reads_side: false, reads_embedding_side: false, ..UNKNOWN };
        for task in [Task::Generate, Task::Embed] {
            let plain = Truncation::resolve(Truncate { side: None, ..truncate("") }, task, old).unwrap();
            assert_eq!(Truncation::resolve(truncate("right"), task, old), Ok(plain));
            assert_eq!(Truncation::resolve(truncate("odd"), task, old), Ok(plain));
            let error = Truncation::resolve(truncate("odd"), task, UNKNOWN).unwrap_err();
            assert_eq!(error.reason(), "bad_prompt");
        }
    }

    #[test]
    fn text_that_the_engine_may_cut_beforehand_is_not_cut_here() {
        let truncate = Truncate { tokens: Some(3), side: Some(TruncationSide::Left), ..Truncate::default() };
        let truncation = Truncation::resolve(truncate, Task::Generate, KNOWN).unwrap();
        assert_eq!(truncation.cut(vec![7; 2048]), Ok(vec![7; 3]));
        assert_eq!(truncation.cut(vec![7; 2049]).unwrap_err().reason(), "unsupported_field");
    }

    #[test]
    fn beginning_has_what_stands_before_the_text_and_nothing_after_it() {
        let ids = |special| encode_beginning(&Bytes { suffix: true }, "ab", special).unwrap();
        assert_eq!(ids(SpecialTokens::Add), [1, 97, 98]);
        assert_eq!(ids(SpecialTokens::Omit), [97, 98]);
    }
}
