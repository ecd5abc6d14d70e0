//! The texts on which an encoder must agree with the reference before a model may use it.
//!
//! Written ones in several scripts, mixtures of nasty fragments, every added token of the model between them, and one
//! long text, each with and without the tokenizer's special tokens. That is no proof, but the known ways to differ
//! (Unicode tables, white space, added tokens, regular expressions, paths for long texts) all show here.

mod corpus;

use std::iter;

use super::{Encode, SpecialTokens};
use crate::check::first_difference;

/// Mixtures of fragments; about 25 kB.
const MIXTURES: usize = 300;

/// Fragments in a mixture, at most.
const FRAGMENTS_MAX: usize = 16;

/// Added tokens in one text. Gemma has 6000 of them; single texts would take seconds, one text would hide the place.
const ADDED_TOKENS_PER_TEXT: usize = 32;

/// Bytes of the long text: above the sizes (64 and 256 kB) at which encoders change their way.
const LONG_TEXT_BYTES: usize = 300_000;

/// What stands between added tokens: they may swallow white space and change what comes next to them.
const SEPARATORS: [&str; 7] = ["", " ", "a", "\n", "  ", "é", " \t\n"];

const MODES: [SpecialTokens; 2] = [SpecialTokens::Add, SpecialTokens::Omit];

/// What the reference makes of the texts.
pub(super) struct Answers {
    texts: Vec<String>,
    /// Per text and mode; `None` where the reference fails.
    ids: Vec<[Option<Vec<u32>>; 2]>,
}

// === impl Answers ===

impl Answers {
    /// Takes about 0.3 s in a release build.
    pub(super) fn of(reference: &dyn Encode, added_tokens: &[String]) -> Self {
        let texts = texts(added_tokens);
        let ids = texts.iter().map(|text| MODES.map(|mode| reference.encode(text, mode).ok())).collect();
        Answers { texts, ids }
    }

    /// # Errors
    /// The first text on which the ids differ, by its number, and where.
    pub(super) fn check(&self, encoder: &dyn Encode) -> Result<(), String> {
        for (number, (text, theirs)) in self.texts.iter().zip(&self.ids).enumerate() {
            for (mode, theirs) in MODES.iter().zip(theirs) {
                let ours = encoder.encode(text, *mode).ok();
                if ours == *theirs {
                    continue;
                }
                let why = match (&ours, theirs) {
                    (Some(ours), Some(theirs)) => {
                        first_difference(ours, theirs).map(|difference| difference.to_string())
                    }
                    (Some(_), None) => Some("the reference fails".into()),
                    (None, _) => Some("it fails".into()),
                };
                return Err(format!("text {number} ({mode:?}): {}", why.unwrap_or_default()));
            }
        }
        Ok(())
    }
}

/// All texts, the same ones for the same added tokens.
fn texts(added_tokens: &[String]) -> Vec<String> {
    let mut texts: Vec<String> = corpus::TEXTS.iter().map(|text| (*text).to_owned()).collect();
    let mut random = SplitMix(0x5eed);
    for tokens in added_tokens.chunks(ADDED_TOKENS_PER_TEXT) {
        let pairs = tokens.iter().flat_map(|token| [random.pick(&SEPARATORS), token.as_str()]);
        texts.push(pairs.collect());
    }
    let few_added: Vec<&str> =
        added_tokens.iter().take(corpus::FRAGMENTS.len()).map(String::as_str).collect();
    for _ in 0..MIXTURES {
        let length = 1 + random.below(FRAGMENTS_MAX);
        // Every fourth fragment is an added token, where there are any.
        let fragment = || match random.below(4) {
            0 => random.pick(&few_added),
            _ => random.pick(corpus::FRAGMENTS),
        };
        texts.push(iter::repeat_with(fragment).take(length).collect());
    }
    let all = texts.concat();
    texts.push(all.repeat(LONG_TEXT_BYTES / all.len().max(1) + 1));
    texts
}

/// SplitMix64: a fixed sequence that looks random.
struct SplitMix(u64);

// === impl SplitMix ===

impl SplitMix {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `bound`; 0 where that is 0.
    fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u64;
        usize::try_from(self.draw().checked_rem(bound).unwrap_or_default()).unwrap_or_default()
    }

    /// One of `texts`; empty where there is none.
    fn pick<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts.get(self.below(texts.len())).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_same_every_time_and_hold_every_added_token() {
        let added: Vec<String> = (0..100).map(|number| format!("<|added {number}|>")).collect();
        let texts = texts(&added);
        assert_eq!(texts, super::texts(&added));
        let long = texts.last().unwrap();
        assert!((LONG_TEXT_BYTES..2 * LONG_TEXT_BYTES).contains(&long.len()), "{}", long.len());
        let in_short = |token: &str| texts.iter().rev().skip(1).any(|text| text.contains(token));
        assert!(added.iter().all(|token| in_short(token)));
        assert!(corpus::FRAGMENTS.iter().all(|fragment| in_short(fragment)));
    }

    #[test]
    fn model_without_added_tokens_has_texts_too() {
        assert!(texts(&[]).len() > MIXTURES);
    }
}
