//! Which encoder a model gets: the fastest that gives the reference's ids on every text of the self-check.
//!
//! ```text
//! tokenizer.json ─▶ reference ─▶ Answers ───┐
//!                └▶ candidate, fastest first ┴▶ compare ─┬─ all equal: chosen; the reference is dropped
//!                                                        ├─ one id differs, cannot load, panics: refused, next
//!                                                        └─ none left: the reference itself
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Encode;
use super::fastokens::Fastokens;
use super::hugging_face::HuggingFace;
use super::self_check::Answers;
use super::splintr::Splintr;

/// An implementation of byte-pair encoding and its relatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncoderKind {
    Fastokens,
    Splintr,
    /// The library that the engine runs.
    Reference,
}

/// Which encoder a model has, and which faster ones it could not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncoderChoice {
    pub kind: EncoderKind,
    /// Encoders that were tried before it, each with the reason in a sentence; without text of any prompt.
    pub refused: Vec<(EncoderKind, String)>,
}

/// An encoder that may be used for a model.
pub(crate) struct Chosen {
    pub(crate) encoder: Box<dyn Encode>,
    pub(crate) choice: EncoderChoice,
}

/// Loads an encoder from the content of a tokenizer.json, or says why it cannot.
type Load<'a> = &'a dyn Fn() -> Result<Box<dyn Encode>, String>;

// === impl EncoderKind ===

impl EncoderKind {
    /// All of them, fastest first.
    pub const ALL: [EncoderKind; 3] = [EncoderKind::Fastokens, EncoderKind::Splintr, EncoderKind::Reference];

    /// The name of the library, for logs.
    pub fn name(self) -> &'static str {
        match self {
            EncoderKind::Fastokens => "fastokens",
            EncoderKind::Splintr => "splintr",
            EncoderKind::Reference => "tokenizers",
        }
    }
}

/// Chooses among all encoders, or checks the `wanted` one. `json` is the content of the model's tokenizer.json.
///
/// # Errors
/// Why the wanted encoder is refused.
pub(crate) fn choose(
    reference: HuggingFace,
    json: &[u8],
    wanted: Option<EncoderKind>,
) -> Result<Chosen, String> {
    let fastokens = || Ok(Box::new(Fastokens::load(json)?) as Box<dyn Encode>);
    let splintr = || Ok(Box::new(Splintr::load(json)?) as Box<dyn Encode>);
    let all: [(EncoderKind, Load<'_>); 2] =
        [(EncoderKind::Fastokens, &fastokens), (EncoderKind::Splintr, &splintr)];
    let candidates: Vec<_> = all.into_iter().filter(|(kind, _)| wanted.is_none_or(|w| w == *kind)).collect();
    let added_tokens = reference.added_tokens();
    let chosen = choose_among(Box::new(reference), &added_tokens, &candidates);
    match wanted {
        Some(wanted) if chosen.choice.kind != wanted => {
            let (kind, why) = chosen.choice.refused.into_iter().next().unwrap_or((wanted, String::new()));
            Err(format!("{} is refused: {why}", kind.name()))
        }
        _ => Ok(chosen),
    }
}

fn choose_among(
    reference: Box<dyn Encode>,
    added_tokens: &[String],
    candidates: &[(EncoderKind, Load<'_>)],
) -> Chosen {
    let mut refused = Vec::new();
    if !candidates.is_empty() {
        let answers = Answers::of(&*reference, added_tokens);
        for (kind, load) in candidates {
            // A library that panics on a file must not keep the program from starting.
            let tried = catch_unwind(AssertUnwindSafe(|| {
                let encoder = load()?;
                answers.check(&*encoder)?;
                Ok(encoder)
            }));
            match tried.unwrap_or_else(|_| Err("it panicked".into())) {
                Ok(encoder) => return Chosen { encoder, choice: EncoderChoice { kind: *kind, refused } },
                Err(why) => refused.push((*kind, why)),
            }
        }
    }
    Chosen { encoder: reference, choice: EncoderChoice { kind: EncoderKind::Reference, refused } }
}

#[cfg(test)]
mod tests;
