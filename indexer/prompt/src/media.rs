//! The beginning of a chat with media whose ids are sure: the text before the first medium, cut back to a place where
//! no token can straddle the cut.
//!
//! `chat/media.rs` gives the text before the first medium. Its ids are not the beginning of the whole prompt's ids yet,
//! because the last characters may be in one token with what comes after them. A special token is taken out of the text
//! before anything else happens to it, and what stands on its two sides is encoded apart; so the ids of a text that
//! ends with a special token are the first ids of every text that begins with it. That holds where
//!
//! - the token is looked for in the text as it stands (not after normalisation) and anywhere (not only as a word of its
//!   own), and
//! - it is really the one found: no other added token begins before it, or inside it, and overlaps it.
//!
//! The engine puts a medium's tokens where its placeholder stands, which is an added token too. A client that writes
//! such a token itself moves the medium there, so the beginning ends before the first of them.

use std::ops::Range;

use aho_corasick::{AhoCorasick, BuildError, MatchKind};

use crate::tokenizer::HuggingFace;

/// Parts of names, in lower case, that the placeholders of models have.
const MEDIA_NAMES: [&str; 7] = ["image", "img", "vision", "video", "audio", "media", "speech"];

/// The added tokens of a model's tokenizer, as far as cutting needs them.
pub(crate) struct MediaCuts {
    /// Finds all added tokens, those inside of others too.
    tokens: AhoCorasick,
    /// By the finder's numbers: whether a text may be cut after the token.
    ends_text: Vec<bool>,
    /// Bytes of the longest token.
    longest: usize,
    /// Finds the first token that may stand for a medium.
    placeholders: AhoCorasick,
}

/// Where an added token stands, in bytes.
type Found = Range<usize>;

// === impl MediaCuts ===

impl MediaCuts {
    pub(crate) fn of(tokenizer: &HuggingFace) -> Result<Self, BuildError> {
        let (mut tokens, mut placeholders) = (Vec::new(), Vec::new());
        for token in tokenizer.added_token_rules().filter(|token| !token.content.is_empty()) {
            let name = token.content.to_lowercase();
            let is_placeholder = MEDIA_NAMES.iter().any(|part| name.contains(part));
            let is_sure = token.special && !token.normalized && !token.single_word;
            if is_placeholder {
                placeholders.push(token.content.clone());
            }
            tokens.push((token.content, is_sure && !is_placeholder));
        }
        Self::build(&tokens, &placeholders)
    }

    /// `tokens`: each with whether a text may be cut after it.
    fn build(tokens: &[(String, bool)], placeholders: &[String]) -> Result<Self, BuildError> {
        Ok(MediaCuts {
            tokens: AhoCorasick::new(tokens.iter().map(|(token, _)| token))?,
            ends_text: tokens.iter().map(|(_, ends_text)| *ends_text).collect(),
            longest: tokens.iter().map(|(token, _)| token.len()).max().unwrap_or_default(),
            placeholders: AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(placeholders)?,
        })
    }

    /// The longest sure beginning of `text` within its first `before_media` bytes. `None`: nothing is sure.
    pub(crate) fn beginning<'a>(&self, text: &'a str, before_media: usize) -> Option<&'a str> {
        let before = text.get(..before_media)?;
        let mut limit = self.placeholders.find(before).map_or(before_media, |token| token.start());
        loop {
            let last = self.last_end(text, limit)?;
            match self.straddling(text, last.start).into_iter().chain(self.straddling(text, last.end)).min() {
                None => return text.get(..last.end),
                // Earlier than before: the text gets shorter with every round.
                Some(other) => limit = other.min(last.end.saturating_sub(1)),
            }
        }
    }

    /// The token to cut after that ends last in the first `limit` bytes, and of those that end there the shortest.
    fn last_end(&self, text: &str, limit: usize) -> Option<Found> {
        let (mut to, mut width) = (limit, 2 * self.longest.max(1));
        loop {
            // Each stretch is as long as all behind it, so none of the text is searched more than a few times.
            let from = to.saturating_sub(width);
            let ends = self.found(text, from..to).filter(|(_, ends_text)| *ends_text);
            let last = ends.map(|(token, _)| token).max_by_key(|token| (token.end, token.start));
            if last.is_some() || from == 0 {
                return last;
            }
            // A token may begin before this stretch and end in it.
            to = from.saturating_add(self.longest).min(to);
            width *= 2;
        }
    }

    /// Where an added token begins that reaches over `place`.
    fn straddling(&self, text: &str, place: usize) -> Option<usize> {
        let around = place.saturating_sub(self.longest)..place.saturating_add(self.longest).min(text.len());
        let over = self.found(text, around).filter(|(token, _)| token.start < place && place < token.end);
        over.map(|(token, _)| token.start).min()
    }

    /// All added tokens inside `range`, a part of `text`, and whether a text may be cut after each.
    fn found(&self, text: &str, range: Range<usize>) -> impl Iterator<Item = (Found, bool)> {
        let inside = text.as_bytes().get(range.clone()).unwrap_or_default();
        self.tokens.find_overlapping_iter(inside).map(move |token| {
            let ends_text = self.ends_text.get(token.pattern().as_usize()).is_some_and(|ends| *ends);
            (range.start + token.start()..range.start + token.end(), ends_text)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cuts(ends: &[&str], placeholders: &[&str], others: &[&str]) -> MediaCuts {
        let all = [ends, placeholders, others].concat();
        let tokens: Vec<_> = all.iter().map(|token| ((*token).to_owned(), ends.contains(token))).collect();
        let placeholders: Vec<_> = placeholders.iter().map(|token| (*token).to_owned()).collect();
        MediaCuts::build(&tokens, &placeholders).unwrap()
    }

    #[test]
    fn beginning_ends_with_the_last_special_token_before_the_medium() {
        let cuts = cuts(&["<|start|>", "<|end|>"], &["<|image|>"], &[]);
        let text = "<|start|>user\nOne<|end|>\n<|start|>user\nSee <|image|> there";
        let place = text.find("<|image|>").unwrap();
        assert_eq!(cuts.beginning(text, place), Some("<|start|>user\nOne<|end|>\n<|start|>"));
        assert_eq!(cuts.beginning(text, "<|start|>us".len()), Some("<|start|>"));
        assert_eq!(cuts.beginning(text, "<|start|".len()), None, "half a token is none");
        assert_eq!(cuts.beginning("no token at all", 5), None);
    }

    #[test]
    fn placeholder_that_the_client_wrote_ends_the_beginning() {
        let cuts = cuts(&["<s>"], &["<image>"], &[]);
        let text = "<s>look <image><s>and <image>";
        assert_eq!(cuts.beginning(text, text.rfind("<image>").unwrap()), Some("<s>"));
    }

    #[test]
    fn cut_through_another_token_is_not_taken() {
        // The tokenizer finds "<s><b>" at 4, so the text is not cut after its "<s>".
        let longer = cuts(&["<s>"], &[], &["<s><b>"]);
        assert_eq!(longer.beginning("<s>a<s><b>c", 8), Some("<s>"));
        // "a<s" begins earlier than "<s>" and takes its first characters.
        let earlier = cuts(&["<s>"], &[], &["a<s"]);
        assert_eq!(earlier.beginning("<s>a<s>c", 7), Some("<s>"));
        // Nothing overlaps at the end of the token, though one begins inside it.
        let inside = cuts(&["<s>"], &[], &["s>x"]);
        assert_eq!(inside.beginning("<s>x<s>c", 7), Some("<s>x<s>"));
        assert_eq!(inside.beginning("<s>x", 3), None);
    }

    /// The same by trying every place.
    fn tried<'a>(
        ends: &[&str],
        placeholders: &[&str],
        others: &[&str],
        text: &'a str,
        media: usize,
    ) -> Option<&'a str> {
        let stands = |token: &&str, start: usize| text.as_bytes()[start..].starts_with(token.as_bytes());
        let all = [ends, placeholders, others].concat();
        let begins_over = |place: usize| {
            (0..place)
                .find(|start| all.iter().any(|token| start + token.len() > place && stands(token, *start)))
        };
        let mut limit = (0..media)
            .find(|start| {
                placeholders.iter().any(|token| start + token.len() <= media && stands(token, *start))
            })
            .unwrap_or(media);
        loop {
            let found = |end: &usize| {
                let token =
                    ends.iter().filter(|token| token.len() <= *end && stands(token, end - token.len()));
                token.map(|token| end - token.len()).max().map(|start| (start, *end))
            };
            let (start, end) = (1..=limit).rev().find_map(|end| found(&end))?;
            match begins_over(start).into_iter().chain(begins_over(end)).min() {
                None => return text.get(..end),
                Some(other) => limit = other.min(end - 1),
            }
        }
    }

    proptest! {
        #[test]
        fn beginning_is_the_one_that_trying_every_place_finds(text in "[<>sab]{0,60}", share in 0..=8_usize) {
            let (ends, placeholders) = (["<s>", "<b>", ">"], ["<a>"]);
            let media = text.len() * share / 8;
            for others in [&[][..], &["a<s", "bb", "s><"], &["<s><b>", "ss>s<", "<"]] {
                let cuts = cuts(&ends, &placeholders, others);
                let want = tried(&ends, &placeholders, others, &text, media);
                prop_assert_eq!(cuts.beginning(&text, media), want, "{:?}", others);
            }
        }
    }

    #[test]
    fn cut_is_a_whole_character_whatever_stands_there() {
        let cuts = cuts(&["<s>"], &[], &["é<s>é"]);
        assert_eq!(cuts.beginning("é<s>é", 6), None);
    }
}
