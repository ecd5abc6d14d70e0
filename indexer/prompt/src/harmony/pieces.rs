//! A harmony prompt: special tokens and texts, each text encoded alone.

use crate::error::PromptError;
use crate::limits::MAX_PROMPT_BYTES;
use crate::prepared::{Prepared, PromptTokens};
use crate::tokenizer::{Encode, SpecialTokens, Truncation};

/// The special tokens that a prompt holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Start,
    Channel,
    Message,
    End,
    /// Ends a call of a tool.
    Call,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Special(Special),
    /// Never empty. Holds no special token, whatever it reads like.
    Text(String),
}

/// A prompt in order, of at most [`MAX_PROMPT_BYTES`]: names and texts may stand in it more often than in the request, so
/// it is not made longer and then refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pieces {
    pieces: Vec<Piece>,
    bytes: usize,
}

// === impl Special ===

impl Special {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Special::Start => "<|start|>",
            Special::Channel => "<|channel|>",
            Special::Message => "<|message|>",
            Special::End => "<|end|>",
            Special::Call => "<|call|>",
        }
    }
}

// === impl Pieces ===

impl Pieces {
    pub(super) fn special(&mut self, special: Special) -> Result<(), PromptError> {
        self.push(Piece::Special(special))
    }

    pub(super) fn text(&mut self, text: impl Into<String>) -> Result<(), PromptError> {
        let text = text.into();
        if text.is_empty() { Ok(()) } else { self.push(Piece::Text(text)) }
    }

    fn push(&mut self, piece: Piece) -> Result<(), PromptError> {
        self.bytes += piece.as_str().len();
        if self.bytes > MAX_PROMPT_BYTES {
            return Err(PromptError::too_large("prompt"));
        }
        self.pieces.push(piece);
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn as_slice(&self) -> &[Piece] {
        &self.pieces
    }

    /// Everything as one text, for people to read: special tokens cannot be told from texts that read like them.
    pub(crate) fn to_text(&self) -> String {
        self.pieces.iter().map(Piece::as_str).collect()
    }

    /// The prompt for the tokenizer: as one text where that gives the same ids, else as ids.
    pub(crate) fn prepare(&self, encoder: &dyn Encode) -> Result<Prepared<'static>, PromptError> {
        if self.encodes_as_one_text() {
            return Ok(Prepared::whole_text(self.to_text(), SpecialTokens::Omit, Truncation::None));
        }
        let mut ids = Vec::new();
        for text in self.pieces.iter().flat_map(Piece::encodable) {
            let encoded = encoder.encode(text, SpecialTokens::Omit);
            ids.extend(encoded.map_err(|error| PromptError::Encoder { why: error.0 })?);
        }
        Ok(Prepared::Ids(PromptTokens::whole(ids)))
    }

    /// Whether the tokenizer, given all in one, finds the same special tokens and cuts between the texts.
    fn encodes_as_one_text(&self) -> bool {
        let parse_clean = self.pieces.iter().all(|piece| match piece {
            Piece::Special(_) => true,
            Piece::Text(text) => special_looks(text).next().is_none(),
        });
        let neighbours = self.pieces.iter().zip(self.pieces.iter().skip(1));
        parse_clean
            && neighbours.into_iter().all(|pair| match pair {
                (Piece::Text(left), Piece::Text(right)) => cuts_between(left, right),
                _ => true,
            })
    }
}

// === impl Piece ===

impl Piece {
    fn as_str(&self) -> &str {
        match self {
            Piece::Special(special) => special.as_str(),
            Piece::Text(text) => text,
        }
    }

    /// The texts to encode one by one, so that a tokenizer that parses special tokens finds those of the piece only.
    ///
    /// A text is cut inside everything that reads like a special token, between `<|` and the letter behind. That
    /// changes nothing: the vocabulary's pattern takes a run of signs whole and a word never begins with two of them,
    /// so there is a border between its words at that place, whatever stands around.
    fn encodable(&self) -> impl Iterator<Item = &str> {
        let text = self.as_str();
        let cuts: Vec<usize> = match self {
            Piece::Special(_) => Vec::new(),
            Piece::Text(text) => special_looks(text).collect(),
        };
        let starts = std::iter::once(0).chain(cuts.clone());
        let ends = cuts.into_iter().chain([text.len()]);
        starts.zip(ends).filter_map(move |(start, end)| text.get(start..end))
    }
}

/// Whether `token` reads like the special tokens of the encoding, as [`special_looks`] finds them.
pub(super) fn reads_as_special(token: &str) -> bool {
    special_looks(token).next() == Some("<|".len())
}

/// The places behind a `<|` with a letter after it: all special tokens of the vocabulary begin like that.
fn special_looks(text: &str) -> impl Iterator<Item = usize> {
    let is_letter = |place: usize| text.as_bytes().get(place).is_some_and(u8::is_ascii_alphabetic);
    text.match_indices("<|").map(|(place, sign)| place + sign.len()).filter(move |place| is_letter(*place))
}

/// Whether the vocabulary's pattern cuts between the two in any case: a blank before a letter begins a word, unless it
/// continues a run of blanks.
fn cuts_between(left: &str, right: &str) -> bool {
    let mut right = right.chars();
    let begins_word = right.next() == Some(' ') && right.next().is_some_and(|c| c.is_ascii_alphabetic());
    begins_word && left.chars().next_back().is_some_and(|c| !c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(parts: &[&str]) -> Pieces {
        let mut pieces = Pieces::default();
        pieces.special(Special::Start).unwrap();
        parts.iter().for_each(|part| pieces.text(*part).unwrap());
        pieces.special(Special::End).unwrap();
        pieces
    }

    #[test]
    fn texts_are_one_where_the_pattern_cuts_between_them() {
        for (parts, one) in [
            (&["user"][..], true),
            (&["assistant", " to=functions.f"], true),
            (&["functions.f ", " to=assistant"], false),
            (&["Hel", "lo"], false),
            (&["a", " 1"], false),
            (&["a<|end|>"], false),
            (&["a<|nope"], false),
            (&["a <| b |>"], true),
            (&[""], true),
        ] {
            assert_eq!(pieces(parts).encodes_as_one_text(), one, "{parts:?}");
        }
    }

    #[test]
    fn what_reads_like_a_special_token_is_cut_inside() {
        let piece = Piece::Text("x<|end|>y<|<|start|>".into());
        assert_eq!(piece.encodable().collect::<Vec<_>>(), ["x<|", "end|>y<|<|", "start|>"]);
        let special = Piece::Special(Special::Start);
        assert_eq!(special.encodable().collect::<Vec<_>>(), ["<|start|>"]);
    }

    #[test]
    fn special_tokens_are_told_from_other_added_ones() {
        assert!(reads_as_special("<|reserved_200013|>"));
        assert!(!reads_as_special("<s>"));
        assert!(!reads_as_special("x<|end|>"));
    }
}
