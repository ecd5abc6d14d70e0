//! Which encoder a model gets: the fastest that gives the reference's ids on every text of the self-check.
//!
//! ```text
//! tokenizer.json ─▶ reference ─▶ Answers ───┐
//!                └▶ candidate, fastest first ┴▶ compare ─┬─ all equal: chosen; the reference is dropped
//!                                                        ├─ one id differs, cannot load, panics: refused, next
//!                                                        └─ none left: the reference itself
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;

use super::Encode;
use super::fastokens::Fastokens;
use super::hugging_face::HuggingFace;
use super::self_check::Answers;
use super::splintr::Splintr;
use crate::error::LoadError;

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

/// A model's reference, and what else takes its time to make of a tokenizer.json.
pub(crate) struct Loaded<'j> {
    pub(crate) reference: HuggingFace,
    json: &'j [u8],
    wanted: Option<EncoderKind>,
    /// What others are compared with; empty where none is wanted.
    answers: Answers,
    fastokens: Option<Result<Fastokens, String>>,
}

/// Loads an encoder, or says why it cannot.
type Load<'a> = Box<dyn FnOnce() -> Result<Box<dyn Encode>, String> + 'a>;

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

// === impl Loaded ===

impl<'j> Loaded<'j> {
    /// `json` is the content of the tokenizer.json at `path`. `wanted`: the only encoder that may be chosen; `None`: all may.
    ///
    /// The reference and the fastest of the others are loaded beside each other, as each has to read the whole vocabulary.
    pub(crate) fn load(path: &Path, json: &'j [u8], wanted: Option<EncoderKind>) -> Result<Self, LoadError> {
        // A library that panics on a file must not keep the program from starting.
        let fastokens = || catch(|| Fastokens::load(json));
        thread::scope(|scope| {
            let loading = wants(wanted, EncoderKind::Fastokens)
                .then(|| thread::Builder::new().name("encoder-load".into()).spawn_scoped(scope, fastokens));
            let reference = HuggingFace::load(path, json)?;
            let answers = if wanted == Some(EncoderKind::Reference) {
                Answers::default()
            } else {
                Answers::of(&reference, &reference.added_tokens())
            };
            let fastokens = loading.map(|loading| match loading {
                Ok(loading) => loading.join().unwrap_or_else(|_| Err(PANICKED.into())),
                Err(_) => fastokens(),
            });
            Ok(Loaded { reference, json, wanted, answers, fastokens })
        })
    }

    /// Chooses among all encoders, or checks the one that is wanted.
    ///
    /// # Errors
    /// Why that one is refused.
    pub(crate) fn choose(self) -> Result<Chosen, String> {
        let Loaded { reference, json, wanted, answers, fastokens } = self;
        let mut candidates: Vec<(EncoderKind, Load<'_>)> = Vec::new();
        if let Some(fastokens) = fastokens {
            candidates
                .push((EncoderKind::Fastokens, Box::new(|| Ok(Box::new(fastokens?) as Box<dyn Encode>))));
        }
        if wants(wanted, EncoderKind::Splintr) {
            let load = || Ok(Box::new(Splintr::load(json)?) as Box<dyn Encode>);
            candidates.push((EncoderKind::Splintr, Box::new(load)));
        }
        let chosen = choose_among(Box::new(reference), &answers, candidates);
        match wanted {
            Some(wanted) if chosen.choice.kind != wanted => {
                let (kind, why) = chosen.choice.refused.into_iter().next().unwrap_or((wanted, String::new()));
                Err(format!("{} is refused: {why}", kind.name()))
            }
            _ => Ok(chosen),
        }
    }
}

fn wants(wanted: Option<EncoderKind>, kind: EncoderKind) -> bool {
    wanted.is_none_or(|wanted| wanted == kind)
}

fn choose_among(
    reference: Box<dyn Encode>,
    answers: &Answers,
    candidates: Vec<(EncoderKind, Load<'_>)>,
) -> Chosen {
    let mut refused = Vec::new();
    for (kind, load) in candidates {
        let tried = catch(|| {
            let encoder = load()?;
            answers.check(&*encoder)?;
            Ok(encoder)
        });
        match tried {
            Ok(encoder) => return Chosen { encoder, choice: EncoderChoice { kind, refused } },
            Err(why) => refused.push((kind, why)),
        }
    }
    Chosen { encoder: reference, choice: EncoderChoice { kind: EncoderKind::Reference, refused } }
}

/// Why an encoder is refused whose library has a bug.
const PANICKED: &str = "it panicked";

fn catch<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(PANICKED.into()))
}

#[cfg(test)]
mod tests;
