//! Places at which a text may be cut, found from the few bytes around them: all ASCII, so no Unicode table decides.

use std::fmt;

/// Where texts of a model may be cut so that the ids of the parts, one after the other, are the ids of the whole.
/// What of it holds for a model is decided by `memo/proof.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutRule {
    /// Between two characters, at least one of `newline` and `blank`.
    Characters {
        /// Between a line feed and an ASCII letter or digit.
        newline: NewlineCuts,
        /// Before a blank that stands between an ASCII letter or digit and an ASCII letter.
        blank: bool,
    },
    /// Before an added token that stands in the text.
    AddedTokens,
    /// Nowhere: every prompt is encoded as a whole.
    Nowhere,
}

/// Which line feeds may end a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewlineCuts {
    None,
    /// Only where the last thing before the white space is an ASCII letter or digit: the white space cannot belong to an
    /// added token then.
    AfterWords,
    All,
}

// === impl CutRule ===

impl CutRule {
    /// The first place at or after `from` where characters may be parted, as an offset in bytes; it is above 0, below
    /// the length, and between characters. `None` too where characters may not be parted at all.
    pub(super) fn next(self, text: &str, from: usize) -> Option<usize> {
        let CutRule::Characters { newline, blank } = self else { return None };
        let bytes = text.as_bytes();
        let begin = from.max(1);
        // Every window begins one byte before the place in question.
        let windows = bytes.get(begin - 1..)?.windows(2).enumerate();
        let holds = |(offset, window): &(usize, &[u8])| match window {
            [b'\n', after] if after.is_ascii_alphanumeric() => match newline {
                NewlineCuts::None => false,
                NewlineCuts::AfterWords => follows_word(bytes, begin + offset),
                NewlineCuts::All => true,
            },
            [before, b' '] if blank && before.is_ascii_alphanumeric() => {
                bytes.get(begin + offset + 1).is_some_and(u8::is_ascii_alphabetic)
            }
            _ => false,
        };
        windows.into_iter().find(holds).map(|(offset, _)| begin + offset)
    }
}

/// Whether a word ends before the white space before `place`.
fn follows_word(bytes: &[u8], place: usize) -> bool {
    let before = bytes.get(..place).unwrap_or_default();
    before.trim_ascii_end().last().is_some_and(u8::is_ascii_alphanumeric)
}

impl fmt::Display for CutRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = match self {
            CutRule::Nowhere => "nowhere",
            CutRule::AddedTokens => "before added tokens",
            CutRule::Characters { newline: NewlineCuts::All, blank: true } => "after lines and before words",
            CutRule::Characters { newline: NewlineCuts::All, blank: false } => "after lines",
            CutRule::Characters { newline: NewlineCuts::AfterWords, blank: true } => {
                "after lines that end in a word and before words"
            }
            CutRule::Characters { newline: NewlineCuts::AfterWords, blank: false } => {
                "after lines that end in a word"
            }
            CutRule::Characters { newline: NewlineCuts::None, .. } => "before words",
        };
        f.write_str(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(newline: NewlineCuts, blank: bool, text: &str) -> Vec<usize> {
        let rule = CutRule::Characters { newline, blank };
        let mut places = Vec::new();
        while let Some(place) = rule.next(text, places.last().map_or(0, |last| last + 1)) {
            places.push(place);
        }
        places
    }

    #[test]
    fn lines_end_after_their_line_feed_and_words_begin_with_their_blank() {
        let text = "\nab c1 d  e 2\n f\n\n3 g\n";
        assert_eq!(all(NewlineCuts::All, false, text), [1, 18]);
        assert_eq!(all(NewlineCuts::None, true, text), [3, 6, 19]);
        assert_eq!(all(NewlineCuts::All, true, text), [1, 3, 6, 18, 19]);
        assert!(all(NewlineCuts::All, true, "").is_empty());
        assert!(all(NewlineCuts::All, true, "a ").is_empty());
    }

    #[test]
    fn after_words_asks_for_a_word_before_the_white_space() {
        assert_eq!(all(NewlineCuts::AfterWords, false, "a\nb>\nc d \n\ne\u{a0}\nf\ng"), [2, 11, 17]);
        assert!(all(NewlineCuts::AfterWords, false, " \nb").is_empty());
    }

    #[test]
    fn only_ascii_counts() {
        assert!(all(NewlineCuts::All, true, "é ä\né ж b\n中").is_empty());
    }
}
