//! Which cuts are proven for a model, by its `tokenizer.json` alone. `docs/decisions/0006-prefix-memo.md` has the argument
//! in full; here it is in the order of the code.
//!
//! The reference encodes a text so: added tokens are found and taken out, which leaves *gaps*; each gap is normalised,
//! split into pieces, and each piece becomes tokens; special tokens are put around the whole. A place parts a text
//! exactly if none of these steps sees both sides of it.
//!
//! | step | what is asked |
//! |---|---|
//! | added tokens | none holds the characters of a cut; none takes white space across one; none asks for its neighbours |
//! | normaliser | maps blanks to `▁`, or is NFC, which leaves ASCII characters and what is before them alone |
//! | pieces | a known pattern ends them at the cut (`splits.rs`), or there is none and the merges decide |
//! | merges | none joins what is on the two sides; the characters of the right side are in the vocabulary |
//! | prefix of a gap (`▁`) | the part that continues a gap is encoded by a second encoder, which adds none |
//!
//! What is not understood here is refused, with an [`Obstacle`]. Then parts may still begin at added tokens: they are
//! found in the raw text before anything else and each gap is encoded by itself, whatever happens to it.

use serde_json::Value as Json;

use super::cuts::{CutRule, NewlineCuts};
use super::definition::{AddedToken, BLANK, Definition, Model};
use super::splits::{PieceEnds, piece_ends};

/// What an encoder puts in front of gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GapPrefix {
    None,
    /// Of the text's first characters, where no added token stands before them.
    OfText,
    OfEveryGap,
}

/// Why a cut is not proven.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    #[error("tokenizer.json has an unknown form: {0}")]
    Form(String),
    #[error("merges are dropped at random")]
    Dropout,
    #[error("an added token asks for its neighbours (single_word)")]
    SingleWordToken,
    #[error("an added token takes the white space before it (lstrip)")]
    LstripToken,
    #[error("an added token that ends in a word takes the white space after it (rstrip)")]
    RstripWord,
    #[error("an added token is empty")]
    EmptyToken,
    #[error("an added token is looked for in a text that the normalizer changes")]
    NormalizedToken,
    #[error("an added token stands across {0}")]
    TokenAcross(Place),
    #[error("an added token ends at {0}, after which a prefix is added")]
    PrefixAt(Place),
    #[error("a merge joins what is on the two sides of {0}")]
    MergeAcross(Place),
    #[error("the vocabulary lacks the character {0:?}")]
    MissingCharacter(char),
    #[error("the normalizer is {0}")]
    Normalizer(String),
    #[error("the pre-tokenizer is {0}")]
    PreTokenizer(String),
    #[error("the pieces of the pre-tokenizer need not end at {0}")]
    PieceAcross(Place),
    #[error("the model is {0}, not BPE")]
    Model(String),
    #[error("BPE marks the pieces of words")]
    Affixes,
    #[error("a text that is an entry of the vocabulary is one token without merges (ignore_merges)")]
    WholeEntries,
    #[error("the post-processor is {0}")]
    PostProcessor(String),
    #[error("no encoder continues a text: {0}")]
    Continuation(String),
    #[error("no added token can begin a part")]
    NoToken,
}

/// A kind of place between characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Newline,
    Blank,
}

/// What is proven about a model's texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    pub(super) rule: CutRule,
    pub(super) prefix: GapPrefix,
    /// Why it is not more.
    pub(super) obstacles: Vec<Obstacle>,
}

/// The kinds of cuts that are left, while one condition after the other is looked at.
#[derive(Debug)]
struct Allowed {
    newline: NewlineCuts,
    blank: bool,
    obstacles: Vec<Obstacle>,
}

// === impl Proof ===

impl Proof {
    pub(super) fn of(definition: &Definition) -> Self {
        match texts_are_framed(definition) {
            Err(obstacle) => {
                Proof { rule: CutRule::Nowhere, prefix: GapPrefix::None, obstacles: vec![obstacle] }
            }
            Ok(()) => match between_characters(definition) {
                Ok((Allowed { newline: NewlineCuts::None, blank: false, obstacles }, _)) => {
                    Self::before_tokens(definition, obstacles)
                }
                Ok((Allowed { newline, blank, obstacles }, prefix)) => {
                    Proof { rule: CutRule::Characters { newline, blank }, prefix, obstacles }
                }
                Err(obstacle) => Self::before_tokens(definition, vec![obstacle]),
            },
        }
    }

    /// Cuts before added tokens only, because of `obstacles`.
    pub(super) fn before_tokens(definition: &Definition, mut obstacles: Vec<Obstacle>) -> Self {
        let some = definition.added_tokens.iter().any(can_begin_a_part);
        let rule = if some { CutRule::AddedTokens } else { CutRule::Nowhere };
        if !some {
            obstacles.push(Obstacle::NoToken);
        }
        Proof { rule, prefix: GapPrefix::None, obstacles }
    }
}

/// Whether a part may begin with this token wherever it is found.
pub(super) fn can_begin_a_part(token: &AddedToken) -> bool {
    !token.normalized && !token.lstrip
}

/// What every kind of cut needs: the same ids for the same text, and special tokens around it that do not depend on it.
fn texts_are_framed(definition: &Definition) -> Result<(), Obstacle> {
    if definition.model.dropout.is_some_and(|dropout| dropout != 0.0) {
        return Err(Obstacle::Dropout);
    }
    if definition.added_tokens.iter().any(|token| token.content.is_empty()) {
        return Err(Obstacle::EmptyToken);
    }
    if definition.added_tokens.iter().any(|token| token.single_word) {
        return Err(Obstacle::SingleWordToken);
    }
    let frames = |step: &Json| matches!(kind(step), "ByteLevel" | "TemplateProcessing");
    match steps(&definition.post_processor, "processors").into_iter().find(|step| !frames(step)) {
        Some(other) => Err(Obstacle::PostProcessor(kind(other).to_owned())),
        None => Ok(()),
    }
}

fn between_characters(definition: &Definition) -> Result<(Allowed, GapPrefix), Obstacle> {
    let Definition { added_tokens, normalizer, pre_tokenizer, model, .. } = definition;
    let normalizers = steps(normalizer, "normalizers");
    let pre_tokenizers = steps(pre_tokenizer, "pretokenizers");
    if model.kind.as_deref() != Some("BPE") {
        return Err(Obstacle::Model(model.kind.clone().unwrap_or_else(|| "not named".into())));
    }
    let mut allowed = Allowed { newline: NewlineCuts::All, blank: true, obstacles: Vec::new() };
    let prefix = if pre_tokenizers.iter().any(|step| kind(step) == "ByteLevel") {
        byte_level(&normalizers, &pre_tokenizers, &mut allowed)?;
        GapPrefix::None
    } else {
        sentence_piece(&normalizers, &pre_tokenizers, model, &mut allowed)?
    };
    for token in added_tokens {
        let reads_raw_text = !token.normalized || normalizers.is_empty();
        let reads_ascii_of_nfc =
            token.content.is_ascii() && normalizers.iter().all(|step| kind(step) == "NFC");
        // Where gaps get a prefix, their beginnings must be found, and those tokens come second.
        let hides_gaps = token.normalized && prefix == GapPrefix::OfEveryGap;
        if !(reads_raw_text || reads_ascii_of_nfc) || hides_gaps {
            return Err(Obstacle::NormalizedToken);
        }
        added_token(token, prefix, &mut allowed)?;
    }
    Ok((allowed, prefix))
}

/// Each piece becomes tokens by itself, so the pieces decide.
fn byte_level(
    normalizers: &[&Json],
    pre_tokenizers: &[&Json],
    allowed: &mut Allowed,
) -> Result<(), Obstacle> {
    if let Some(other) = normalizers.iter().find(|step| kind(step) != "NFC") {
        return Err(Obstacle::Normalizer(kind(other).to_owned()));
    }
    match piece_ends(pre_tokenizers).map_err(Obstacle::PreTokenizer)? {
        PieceEnds::BlankAndNewline => {}
        PieceEnds::Blank => allowed.refuse(Obstacle::PieceAcross, Place::Newline),
    }
    Ok(())
}

/// A gap is one piece, or one per `▁`, so the merges decide.
fn sentence_piece(
    normalizers: &[&Json],
    pre_tokenizers: &[&Json],
    model: &Model,
    allowed: &mut Allowed,
) -> Result<GapPrefix, Obstacle> {
    let text = |step: &Json, pointer: &str| step.pointer(pointer).and_then(Json::as_str).map(str::to_owned);
    let is_blank = |text: Option<String>| text.is_some_and(|text| text.chars().eq([BLANK]));
    let (mut prefix, mut blanks_replaced) = (GapPrefix::None, false);
    for step in normalizers {
        match kind(step) {
            "Prepend" if is_blank(text(step, "/prepend")) => prefix = GapPrefix::OfEveryGap,
            "Replace"
                if text(step, "/pattern/String").as_deref() == Some(" ")
                    && is_blank(text(step, "/content")) =>
            {
                blanks_replaced = true;
            }
            other => return Err(Obstacle::Normalizer(other.to_owned())),
        }
    }
    match pre_tokenizers {
        [] if blanks_replaced => {}
        // No blank is left to split at.
        [step] if kind(step) == "Split" && blanks_replaced => {
            if text(step, "/pattern/String").as_deref() != Some(" ") {
                return Err(Obstacle::PreTokenizer("Split at something else than blanks".into()));
            }
        }
        [step]
            if kind(step) == "Metaspace"
                && prefix == GapPrefix::None
                && is_blank(text(step, "/replacement"))
                && step.get("split").is_some_and(Json::is_boolean) =>
        {
            prefix = match text(step, "/prepend_scheme").as_deref() {
                Some("never") => GapPrefix::None,
                Some("first") => GapPrefix::OfText,
                Some("always") => GapPrefix::OfEveryGap,
                _ => return Err(Obstacle::PreTokenizer("Metaspace with an unknown prefix".into())),
            };
        }
        _ => {
            let all: Vec<&str> = pre_tokenizers.iter().map(|step| kind(step)).collect();
            let all =
                if all.is_empty() { "none, and blanks are not replaced".to_owned() } else { all.join(", ") };
            return Err(Obstacle::PreTokenizer(all));
        }
    }
    merges(model, allowed)?;
    Ok(prefix)
}

/// Where no merge joins the last character on the left with the first one on the right, no token ever holds both, and
/// merges on one side are made in the same order whatever happens on the other.
fn merges(model: &Model, allowed: &mut Allowed) -> Result<(), Obstacle> {
    let has_affix = |affix: &Option<String>| affix.as_deref().is_some_and(|affix| !affix.is_empty());
    if has_affix(&model.continuing_subword_prefix) || has_affix(&model.end_of_word_suffix) {
        return Err(Obstacle::Affixes);
    }
    // A whole gap may be an entry that no merge makes, with the place of a cut inside.
    if model.ignore_merges == Some(true) {
        return Err(Obstacle::WholeEntries);
    }
    // A character that is not in the vocabulary may be fused with others like it, and is put down late.
    if let Some(character) = model.vocab.missing() {
        return Err(Obstacle::MissingCharacter(character));
    }
    if model.merges.unreadable {
        return Err(Obstacle::Form("a merge is no pair of texts".into()));
    }
    if model.merges.word_with_blank {
        allowed.refuse(Obstacle::MergeAcross, Place::Blank);
    }
    // A line feed may be a byte token.
    if model.merges.newline_with_word || model.merges.byte_token {
        allowed.refuse(Obstacle::MergeAcross, Place::Newline);
    }
    Ok(())
}

fn added_token(token: &AddedToken, prefix: GapPrefix, allowed: &mut Allowed) -> Result<(), Obstacle> {
    let bytes = token.content.as_bytes();
    let ends_in_word = bytes.last().is_some_and(u8::is_ascii_alphanumeric);
    if token.lstrip {
        return Err(Obstacle::LstripToken);
    }
    if token.rstrip && ends_in_word {
        return Err(Obstacle::RstripWord);
    }
    if token.rstrip && allowed.newline == NewlineCuts::All {
        allowed.newline = NewlineCuts::AfterWords;
    }
    for place in [Place::Newline, Place::Blank] {
        if place.is_inside(bytes) {
            allowed.refuse(Obstacle::TokenAcross, place);
        }
    }
    if prefix == GapPrefix::OfEveryGap && bytes.last() == Some(&b'\n') {
        allowed.refuse(Obstacle::PrefixAt, Place::Newline);
    }
    if prefix == GapPrefix::OfEveryGap && ends_in_word {
        allowed.refuse(Obstacle::PrefixAt, Place::Blank);
    }
    Ok(())
}

// === impl Allowed ===

impl Allowed {
    fn refuse(&mut self, why: fn(Place) -> Obstacle, place: Place) {
        match place {
            Place::Newline => self.newline = NewlineCuts::None,
            Place::Blank => self.blank = false,
        }
        let obstacle = why(place);
        if !self.obstacles.contains(&obstacle) {
            self.obstacles.push(obstacle);
        }
    }
}

// === impl Place ===

impl Place {
    /// Whether an added token may match on both sides of such a place.
    fn is_inside(self, token: &[u8]) -> bool {
        token.windows(2).enumerate().any(|(start, window)| match (self, window) {
            (Place::Newline, [b'\n', after]) => after.is_ascii_alphanumeric(),
            // The letter that a cut asks for may stand after the token.
            (Place::Blank, [before, b' ']) => {
                before.is_ascii_alphanumeric() && token.get(start + 2).is_none_or(u8::is_ascii_alphabetic)
            }
            _ => false,
        })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Place::Newline => "a line feed before a letter or digit",
            Place::Blank => "a blank before a letter",
        })
    }
}

/// The name of a step's type; empty where it has none.
fn kind(step: &Json) -> &str {
    step.get("type").and_then(Json::as_str).unwrap_or_default()
}

/// The steps of a sequence; a step by itself; nothing.
pub(super) fn steps<'a>(step: &'a Json, sequence: &str) -> Vec<&'a Json> {
    match step {
        Json::Null => Vec::new(),
        step if kind(step) == "Sequence" => {
            let nested = step.get(sequence).and_then(Json::as_array);
            nested.into_iter().flatten().flat_map(|step| steps(step, sequence)).collect()
        }
        step => vec![step],
    }
}

#[cfg(test)]
mod tests;
