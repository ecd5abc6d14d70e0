//! A model's texts in parts: where they are cut, and the ids of each.

use std::path::Path;

use aho_corasick::{AhoCorasick, Input, MatchKind};
use serde_json::Value as Json;

use super::cuts::CutRule;
use super::definition::Definition;
use super::proof::{GapPrefix, Obstacle, Proof, can_begin_a_part};
use crate::tokenizer::{Encode, EncodeError, EncoderKind, Loaded, SpecialTokens, frame};

/// Bytes of a part at least; it ends at the next cut. Smaller parts leave less to encode at the end of a text, larger
/// ones make fewer keys: `docs/benchmarks.md` compares 1, 2 and 4 kB.
pub(super) const PART_BYTES_MIN: usize = 2048;

/// Where a model's texts are cut, and why not at more places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cuts {
    pub rule: CutRule,
    /// Empty where every kind of cut is proven.
    pub obstacles: Vec<Obstacle>,
}

/// See the module's documentation.
pub(crate) struct Parts {
    cuts: Cuts,
    tokens: Option<AddedTokens>,
    continuation: Continuation,
    /// `None`: special tokens are not put around texts in a way that is understood.
    frame: Option<Frame>,
}

/// The ids that the tokenizer puts around texts that get special tokens.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) before: Vec<u32>,
    pub(super) after: Vec<u32>,
}

/// Added tokens that are found in the raw text, as the reference finds them.
struct AddedTokens {
    matcher: AhoCorasick,
    /// By the matcher's numbers: whether a part may begin with it.
    begins_parts: Vec<bool>,
}

/// How a part is encoded that is not a text's first.
enum Continuation {
    /// Like the first.
    Same,
    /// Without the prefix that a text's first characters get.
    NoPrefix(Box<dyn Encode>),
    /// Without a prefix up to the first added token: the gap began in an earlier part.
    NoPrefixBeforeToken(Box<dyn Encode>),
}

// === impl Parts ===

impl Parts {
    /// `json` is the content of the tokenizer.json at `path`, which `encoder` was loaded from. `wanted`: the only kind of
    /// encoder that may continue texts.
    pub(crate) fn of(path: &Path, json: &[u8], encoder: &dyn Encode, wanted: Option<EncoderKind>) -> Self {
        let definition: Definition = match serde_json::from_slice(json) {
            Ok(definition) => definition,
            Err(error) => return Self::whole(Obstacle::Form(error.to_string())),
        };
        let mut proof = Proof::of(&definition);
        let continuation = Continuation::load(path, json, proof.prefix, wanted).unwrap_or_else(|why| {
            let obstacles = [proof.obstacles.clone(), vec![Obstacle::Continuation(why)]].concat();
            proof = Proof::before_tokens(&definition, obstacles);
            Continuation::Same
        });
        let needs_tokens = proof.rule == CutRule::AddedTokens
            || matches!(continuation, Continuation::NoPrefixBeforeToken(_));
        match needs_tokens.then(|| AddedTokens::of(&definition)).transpose() {
            Ok(tokens) => Parts {
                cuts: Cuts { rule: proof.rule, obstacles: proof.obstacles },
                tokens,
                continuation,
                frame: Frame::of(encoder),
            },
            Err(why) => Self::whole(Obstacle::Form(why)),
        }
    }

    /// Texts that are never cut.
    fn whole(obstacle: Obstacle) -> Self {
        let cuts = Cuts { rule: CutRule::Nowhere, obstacles: vec![obstacle] };
        Parts { cuts, tokens: None, continuation: Continuation::Same, frame: None }
    }

    pub(crate) fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// What is put around a text. `None`: it is not known, so the text must be encoded as a whole.
    pub(super) fn frame(&self, special: SpecialTokens) -> Option<&Frame> {
        static BARE: Frame = Frame { before: Vec::new(), after: Vec::new() };
        match special {
            SpecialTokens::Omit => Some(&BARE),
            SpecialTokens::Add => self.frame.as_ref(),
        }
    }

    /// The end of the part of `text` that begins at `begin`, at least `bytes_min` further on; `None`: it has no end but
    /// the text's. Depends on nothing before `begin`, and on what follows the end only by a byte or a token.
    pub(super) fn end(&self, text: &str, begin: usize, bytes_min: usize) -> Option<usize> {
        match (self.cuts.rule, &self.tokens) {
            (CutRule::AddedTokens, Some(tokens)) => tokens.next(text, begin, bytes_min),
            (rule, _) => rule.next(text, begin.saturating_add(bytes_min)),
        }
    }

    /// The ids of one part, without special tokens around it.
    pub(super) fn encode(
        &self,
        encoder: &dyn Encode,
        part: &str,
        is_first: bool,
    ) -> Result<Vec<u32>, EncodeError> {
        let encode = |encoder: &dyn Encode, text: &str| encoder.encode(text, SpecialTokens::Omit);
        match &self.continuation {
            _ if is_first => encode(encoder, part),
            Continuation::Same => encode(encoder, part),
            Continuation::NoPrefix(bare) => encode(&**bare, part),
            Continuation::NoPrefixBeforeToken(bare) => {
                let token = self.tokens.as_ref().and_then(|tokens| tokens.matcher.find(part));
                let begin = token.map_or(part.len(), |token| token.start());
                let (gap, rest) = part.split_at_checked(begin).unwrap_or((part, ""));
                let mut ids = if gap.is_empty() { Vec::new() } else { encode(&**bare, gap)? };
                if !rest.is_empty() {
                    ids.extend(encode(encoder, rest)?);
                }
                Ok(ids)
            }
        }
    }
}

#[cfg(test)]
impl Parts {
    /// Encodes every part like a text's first.
    pub(super) fn forget_continuation(&mut self) {
        self.continuation = Continuation::Same;
    }
}

// === impl Continuation ===

impl Continuation {
    fn load(
        path: &Path,
        json: &[u8],
        prefix: GapPrefix,
        wanted: Option<EncoderKind>,
    ) -> Result<Self, String> {
        let load = || {
            let json = without_prefix(json)?;
            let loaded = Loaded::load(path, &json, wanted).map_err(|error| error.to_string())?;
            Ok(loaded.choose()?.encoder)
        };
        match prefix {
            GapPrefix::None => Ok(Continuation::Same),
            GapPrefix::OfText => load().map(Continuation::NoPrefix),
            GapPrefix::OfEveryGap => load().map(Continuation::NoPrefixBeforeToken),
        }
    }
}

/// The same tokenizer.json, but nothing is put in front of gaps.
fn without_prefix(json: &[u8]) -> Result<Vec<u8>, String> {
    let failed = |error: serde_json::Error| error.to_string();
    let mut json: Json = serde_json::from_slice(json).map_err(failed)?;
    if let Some(normalizer) = json.get_mut("normalizer") {
        drop_prepend(normalizer);
    }
    if let Some(step) = json.get_mut("pre_tokenizer").and_then(Json::as_object_mut)
        && step.contains_key("prepend_scheme")
    {
        step.insert("prepend_scheme".into(), "never".into());
        // An older name for the same; the two must not contradict each other.
        step.shift_remove("add_prefix_space");
    }
    serde_json::to_vec(&json).map_err(failed)
}

fn drop_prepend(step: &mut Json) {
    let is_prepend = |step: &Json| step.get("type").and_then(Json::as_str) == Some("Prepend");
    if is_prepend(step) {
        *step = Json::Null;
    } else if let Some(steps) = step.get_mut("normalizers").and_then(Json::as_array_mut) {
        steps.retain(|step| !is_prepend(step));
        steps.iter_mut().for_each(drop_prepend);
    }
}

// === impl AddedTokens ===

impl AddedTokens {
    fn of(definition: &Definition) -> Result<Self, String> {
        let raw = || definition.added_tokens.iter().filter(|token| !token.normalized);
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(raw().map(|token| &token.content))
            .map_err(|error| error.to_string())?;
        Ok(AddedTokens { matcher, begins_parts: raw().map(can_begin_a_part).collect() })
    }

    /// The first of those at least `bytes_min` after `begin`, where an earlier part ended.
    fn next(&self, text: &str, begin: usize, bytes_min: usize) -> Option<usize> {
        let begins_part =
            |number: usize| self.begins_parts.get(number).is_some_and(|begins_part| *begins_part);
        let least = begin.saturating_add(bytes_min);
        // From `begin` on: which token is found depends on where those before it end.
        self.matcher
            .find_iter(Input::new(text).range(begin..))
            .find(|token| {
                token.start() >= least && token.start() > 0 && begins_part(token.pattern().as_usize())
            })
            .map(|token| token.start())
    }
}

// === impl Frame ===

impl Frame {
    /// Found by trying; `None`: two texts have different ones.
    fn of(encoder: &dyn Encode) -> Option<Self> {
        let around = |text: &str| {
            let framed = encoder.encode(text, SpecialTokens::Add).ok()?;
            let bare = encoder.encode(text, SpecialTokens::Omit).ok()?;
            let (before, after) = frame(&framed, &bare)?;
            Some(Frame { before: before.to_vec(), after: after.to_vec() })
        };
        let found = around("a")?;
        (around("One line.\nAnd 2 more.")? == found).then_some(found)
    }
}
