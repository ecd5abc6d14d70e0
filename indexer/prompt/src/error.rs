//! What can go wrong: [`LoadError`] when a model is set up, [`PromptError`] for one request.

use std::path::{Path, PathBuf};

use crate::limits::{MAX_JSON_VALUES, MAX_PROMPT_BYTES};
use crate::version::OverrideError;

/// Why a model's files could not be used. Names the file and the remedy; found at start, never while serving.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{}: not a directory; set it to the folder that holds the model's tokenizer.json", path.display())]
    NotADirectory { path: PathBuf },
    #[error("{}: not found; {remedy}", path.display())]
    Missing { path: PathBuf, remedy: &'static str },
    #[error("{}: cannot be read: {source}; check its permissions", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: has {bytes} bytes, more than the limit of {limit}; check that it is the right file", path.display())]
    TooLarge { path: PathBuf, bytes: u64, limit: u64 },
    /// `why` carries the line and column of the first fault.
    #[error("{}: broken JSON: {why}; fetch the file again", path.display())]
    BrokenJson { path: PathBuf, why: String },
    #[error("{}: not a tokenizer this build can run: {why}", path.display())]
    UnusableTokenizer { path: PathBuf, why: String },
    #[error(transparent)]
    BadRule(#[from] OverrideError),
    #[error("{}: field \"{field}\" {why}", path.display())]
    BadField { path: PathBuf, field: &'static str, why: String },
    #[error("{}: chat template does not compile: {why}; give a corrected one as chat_template", path.display())]
    BadTemplate { path: PathBuf, why: String },
}

impl LoadError {
    /// The file or folder that is at fault; None: none is.
    pub fn path(&self) -> Option<&Path> {
        match self {
            LoadError::NotADirectory { path }
            | LoadError::Missing { path, .. }
            | LoadError::Unreadable { path, .. }
            | LoadError::TooLarge { path, .. }
            | LoadError::BrokenJson { path, .. }
            | LoadError::UnusableTokenizer { path, .. }
            | LoadError::BadField { path, .. }
            | LoadError::BadTemplate { path, .. } => Some(path),
            LoadError::BadRule(_) => None,
        }
    }
}

/// Why a request's token ids cannot be known. No variant carries prompt text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// The model, its template or its files do not let us render; every such request of this model ends here.
    #[error("prompt cannot be rendered: {why}")]
    NotRenderable { why: String },
    /// The request uses a field whose effect on the ids depends on settings of the engine that are not known here.
    #[error("field \"{field}\" {why}")]
    UnsupportedField { field: &'static str, why: String },
    /// Images, audio, video or embeddings: the engine puts placeholder tokens in whose number is not known here, and no
    /// beginning of the prompt is sure without them.
    #[error("the request holds media, which decide the ids from the beginning on")]
    Media,
    /// The engine will refuse the request too: malformed messages, or the template raised an exception.
    #[error("engine would refuse the request: {why}")]
    Refused { why: String },
    #[error("{what} has more bytes than the limit of {limit}")]
    TooLarge { what: &'static str, limit: usize },
    #[error("{what} has more JSON values than the limit of {limit}")]
    TooMany { what: &'static str, limit: usize },
    #[error("tokenizer failed: {why}")]
    Encoder { why: String },
}

impl PromptError {
    /// Every value that [`reason`](Self::reason) can take, for metrics that list their labels.
    pub const REASONS: [&'static str; 4] = ["not_renderable", "unsupported_field", "media", "bad_prompt"];

    /// The closed label of this error: metric label, log field and `ScoreResponse.reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            PromptError::NotRenderable { .. }
            | PromptError::TooLarge { .. }
            | PromptError::TooMany { .. }
            | PromptError::Encoder { .. } => "not_renderable",
            PromptError::UnsupportedField { .. } => "unsupported_field",
            PromptError::Media => "media",
            PromptError::Refused { .. } => "bad_prompt",
        }
    }

    pub(crate) fn too_large(what: &'static str) -> Self {
        PromptError::TooLarge { what, limit: MAX_PROMPT_BYTES }
    }

    pub(crate) fn too_many(what: &'static str) -> Self {
        PromptError::TooMany { what, limit: MAX_JSON_VALUES }
    }

    pub(crate) fn refused(why: impl Into<String>) -> Self {
        PromptError::Refused { why: why.into() }
    }

    pub(crate) fn unsupported(field: &'static str, why: impl Into<String>) -> Self {
        PromptError::UnsupportedField { field, why: why.into() }
    }

    pub(crate) fn not_renderable(why: impl Into<String>) -> Self {
        PromptError::NotRenderable { why: why.into() }
    }
}
