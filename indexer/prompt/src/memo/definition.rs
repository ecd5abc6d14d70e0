//! What the proof needs of a `tokenizer.json`. Vocabulary and merges, most of the file, are looked at while it is parsed
//! and not kept.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;

/// Stands for a blank in SentencePiece's vocabularies.
pub(super) const BLANK: char = '▁';

#[derive(Debug, Deserialize)]
pub(super) struct Definition {
    #[serde(default)]
    pub(super) added_tokens: Vec<AddedToken>,
    #[serde(default)]
    pub(super) normalizer: Json,
    #[serde(default)]
    pub(super) pre_tokenizer: Json,
    #[serde(default)]
    pub(super) post_processor: Json,
    pub(super) model: Model,
}

#[derive(Debug, Deserialize)]
pub(super) struct AddedToken {
    pub(super) content: String,
    #[serde(default)]
    pub(super) single_word: bool,
    /// Takes the white space before it.
    #[serde(default)]
    pub(super) lstrip: bool,
    /// Takes the white space after it.
    #[serde(default)]
    pub(super) rstrip: bool,
    /// Is looked for after normalisation.
    #[serde(default)]
    pub(super) normalized: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Model {
    #[serde(rename = "type", default)]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) dropout: Option<f64>,
    #[serde(default)]
    pub(super) continuing_subword_prefix: Option<String>,
    #[serde(default)]
    pub(super) end_of_word_suffix: Option<String>,
    /// A piece that is an entry of the vocabulary becomes that one token, whatever merges would make of it.
    #[serde(default)]
    pub(super) ignore_merges: Option<bool>,
    #[serde(default)]
    pub(super) vocab: Vocabulary,
    #[serde(default)]
    pub(super) merges: Merges,
}

/// Which of the characters that the proof asks for are entries of their own.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    characters: HashSet<char>,
}

/// What merges join, as far as the proof asks.
#[derive(Debug, Default)]
pub(super) struct Merges {
    /// An ASCII letter or digit with a blank.
    pub(super) word_with_blank: bool,
    /// A line feed with an ASCII letter or digit.
    pub(super) newline_with_word: bool,
    /// A byte token (`<0x0A>`), which is the character only in a sense.
    pub(super) byte_token: bool,
    /// Something that is no pair of texts.
    pub(super) unreadable: bool,
}

// === impl Vocabulary ===

impl Vocabulary {
    /// The first ASCII letter, digit or blank that is missing.
    pub(super) fn missing(&self) -> Option<char> {
        asked().find(|character| !self.characters.contains(character))
    }

    fn note(&mut self, entry: &str) {
        let mut characters = entry.chars();
        if let (Some(only), None) = (characters.next(), characters.next())
            && (only.is_ascii_alphanumeric() || only == BLANK)
        {
            self.characters.insert(only);
        }
    }
}

fn asked() -> impl Iterator<Item = char> {
    ('0'..='9').chain('A'..='Z').chain('a'..='z').chain([BLANK])
}

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Vocabulary;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map or a list of entries")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
                let mut vocabulary = Vocabulary::default();
                while let Some((entry, _)) = map.next_entry::<Cow<'de, str>, IgnoredAny>()? {
                    vocabulary.note(&entry);
                }
                Ok(vocabulary)
            }

            /// Unigram: entries with their scores, of which nothing is proven.
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocabulary, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Vocabulary::default())
            }
        }

        deserializer.deserialize_any(Entries)
    }
}

// === impl Merges ===

impl Merges {
    fn note(&mut self, left: &str, right: &str) {
        let (Some(last), Some(first)) = (left.chars().next_back(), right.chars().next()) else {
            self.unreadable = true;
            return;
        };
        self.word_with_blank |= last.is_ascii_alphanumeric() && first == BLANK;
        self.newline_with_word |= last == '\n' && first.is_ascii_alphanumeric();
        self.byte_token |= is_byte_token(left) || is_byte_token(right);
    }
}

fn is_byte_token(token: &str) -> bool {
    token.len() == 6 && token.starts_with("<0x") && token.ends_with('>')
}

/// One merge, as newer files write it or as older ones do.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge<'a> {
    Pair(#[serde(borrow)] Cow<'a, str>, #[serde(borrow)] Cow<'a, str>),
    Line(#[serde(borrow)] Cow<'a, str>),
    Other(IgnoredAny),
}

impl<'de> Deserialize<'de> for Merges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Merges;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of merges")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merges, A::Error> {
                let mut merges = Merges::default();
                while let Some(merge) = list.next_element::<Merge<'de>>()? {
                    match &merge {
                        Merge::Pair(left, right) => merges.note(left, right),
                        Merge::Line(line) => match line.split_once(' ') {
                            Some((left, right)) => merges.note(left, right),
                            None => merges.unreadable = true,
                        },
                        Merge::Other(_) => merges.unreadable = true,
                    }
                }
                Ok(merges)
            }
        }

        deserializer.deserialize_seq(Pairs)
    }
}
