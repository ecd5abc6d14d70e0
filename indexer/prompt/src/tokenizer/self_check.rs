//! The texts on which an encoder must agree with the reference before a model may use it.
//!
//! Written ones in several scripts, mixtures of nasty fragments, and every added token of the model, each with and
//! without the tokenizer's special tokens; and all of them as one long text. That is no proof, but the known ways to differ
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

/// What the reference makes of the texts.
#[derive(Default)]
pub(super) struct Answers(Vec<Answer>);

struct Answer {
    text: String,
    mode: SpecialTokens,
    /// `None`: it fails.
    ids: Option<Vec<u32>>,
}

// === impl Answers ===

impl Answers {
    /// Takes about 0.2 s in a release build.
    pub(super) fn of(reference: &dyn Encode, added_tokens: &[String]) -> Self {
        let short = short_texts(added_tokens);
        // What frames a text does not depend on its length: the long one is asked without.
        let long = (long_text(&short), SpecialTokens::Omit);
        let both = |text: String| [(text.clone(), SpecialTokens::Add), (text, SpecialTokens::Omit)];
        let questions = short.into_iter().flat_map(both).chain([long]);
        let answer = |(text, mode): (String, _)| {
            let ids = reference.encode(&text, mode).ok();
            Answer { text, mode, ids }
        };
        Answers(questions.map(answer).collect())
    }

    /// # Errors
    /// The first text on which the ids differ, by its number, and where.
    pub(super) fn check(&self, encoder: &dyn Encode) -> Result<(), String> {
        for (number, Answer { text, mode, ids: theirs }) in self.0.iter().enumerate() {
            let ours = encoder.encode(text, *mode).ok();
            let difference = match (&ours, theirs) {
                (Some(ours), Some(theirs)) => first_difference(ours, theirs).map(|it| it.to_string()),
                (Some(_), None) => Some("the reference fails".into()),
                (None, Some(_)) => Some("it fails".into()),
                (None, None) => None,
            };
            if let Some(why) = difference {
                return Err(format!("text {number} ({mode:?}): {why}"));
            }
        }
        Ok(())
    }
}

/// The same ones for the same added tokens.
fn short_texts(added_tokens: &[String]) -> Vec<String> {
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
    texts
}

fn long_text(short: &[String]) -> String {
    let all = short.concat();
    all.repeat(LONG_TEXT_BYTES / all.len().max(1) + 1)
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
        let texts = short_texts(&added);
        assert_eq!(texts, short_texts(&added));
        let some_text_has = |part: &str| texts.iter().any(|text| text.contains(part));
        assert!(added.iter().all(|token| some_text_has(token)));
        assert!(corpus::FRAGMENTS.iter().all(|fragment| some_text_has(fragment)));
        assert!((LONG_TEXT_BYTES..2 * LONG_TEXT_BYTES).contains(&long_text(&texts).len()));
    }

    #[test]
    fn model_without_added_tokens_has_texts_too() {
        assert!(short_texts(&[]).len() > MIXTURES);
    }
}
