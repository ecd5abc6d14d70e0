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

use crate::tokenizer::HuggingFace;

/// Parts of names, in lower case, that the placeholders of models have.
const MEDIA_NAMES: [&str; 7] = ["image", "img", "vision", "video", "audio", "media", "speech"];

/// The added tokens of a model's tokenizer, as far as cutting needs them.
pub(crate) struct MediaCuts {
    /// All added tokens.
    all: Vec<String>,
    /// Those after which a text may be cut.
    ends: Vec<String>,
    /// Those that may stand for a medium.
    placeholders: Vec<String>,
}

// === impl MediaCuts ===

impl MediaCuts {
    pub(crate) fn of(tokenizer: &HuggingFace) -> Self {
        let mut cuts = MediaCuts { all: Vec::new(), ends: Vec::new(), placeholders: Vec::new() };
        for token in tokenizer.added_token_rules().filter(|token| !token.content.is_empty()) {
            let name = token.content.to_lowercase();
            if MEDIA_NAMES.iter().any(|part| name.contains(part)) {
                cuts.placeholders.push(token.content.clone());
            } else if token.special && !token.normalized && !token.single_word {
                cuts.ends.push(token.content.clone());
            }
            cuts.all.push(token.content);
        }
        cuts
    }

    /// The longest sure beginning of `text` within its first `before_media` bytes. `None`: nothing is sure.
    pub(crate) fn beginning<'a>(&self, text: &'a str, before_media: usize) -> Option<&'a str> {
        let before = text.get(..before_media)?;
        let first = self.placeholders.iter().filter_map(|token| before.find(token)).min();
        let mut limit = first.unwrap_or(before_media);
        loop {
            let within = text.get(..limit)?;
            let last =
                |token: &String| within.rfind(token.as_str()).map(|start| (start + token.len(), start));
            let (end, start) = self.ends.iter().filter_map(last).max()?;
            match self.straddling(text, start).into_iter().chain(self.straddling(text, end)).min() {
                None => return text.get(..end),
                // Earlier than before: the text gets shorter with every round.
                Some(other) => limit = other.min(end.saturating_sub(1)),
            }
            while !text.is_char_boundary(limit) {
                limit -= 1;
            }
        }
    }

    /// Where an added token begins that reaches over `place`.
    fn straddling(&self, text: &str, place: usize) -> Option<usize> {
        let starts = |token: &String| {
            let from = (place + 1).saturating_sub(token.len());
            (from..place)
                .find(|start| text.get(*start..).is_some_and(|rest| rest.starts_with(token.as_str())))
        };
        self.all.iter().filter_map(starts).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cuts(ends: &[&str], placeholders: &[&str], others: &[&str]) -> MediaCuts {
        let owned = |tokens: &[&str]| tokens.iter().map(|token| (*token).to_owned()).collect::<Vec<_>>();
        let all = [ends, placeholders, others].concat();
        MediaCuts { all: owned(&all), ends: owned(ends), placeholders: owned(placeholders) }
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

    #[test]
    fn cut_is_a_whole_character_whatever_stands_there() {
        let cuts = cuts(&["<s>"], &[], &["é<s>é"]);
        assert_eq!(cuts.beginning("é<s>é", 6), None);
    }
}
