//! From a prompt to the engine's own token ids.
//!
//! ```text
//! completion           text ──────────────────────────────────────────────┐
//! chat                 JSON ─┬▶ ChatInput ─▶ Conversation ─▶ template ─▶ text ─▶ Prepared ─▶ encode ─▶ PromptTokens
//! responses, messages  JSON ─┘                                                   ▲
//! token ids; all of gpt-oss, by harmony ─────────────────────────────────────────┘
//! ```
//!
//! What the engine does to a request is in `chat.rs`, `responses.rs` and `anthropic.rs`, what it leaves to its template
//! library in `template.rs`, gpt-oss's own form in `harmony.rs`.
//!
//! [`ModelPrompt`] owns everything that one model needs: its tokenizer, its compiled chat template and the
//! [`RenderingRules`] of the engine release that serves it. It is loaded once, is `Send + Sync`, and every request is a
//! pure function of it, the request and the injected [`Clock`].
//!
//! Exact or nothing: where the engine's ids cannot be known, the answer is a [`PromptError`] whose
//! [`reason`](PromptError::reason) says why, never a guess. No network, no async. What one request leaves to others is in a
//! [`Memo`] that the caller owns: what beginnings of texts were folded into, so that only the new part of a prompt is
//! encoded ([`ModelPrompt::fold`]).

mod anthropic;
mod bounded;
mod chat;
mod check;
mod completion;
mod error;
mod forwarded;
mod harmony;
mod limits;
mod media;
mod memo;
mod model;
mod prepared;
mod request;
mod responses;
mod task;
mod template;
mod tokenizer;
mod values;
mod version;

pub use anthropic::MessagesRequest;
pub use chat::{ChatRequest, TemplateInput};
pub use check::{Difference, first_difference};
pub use error::{LoadError, PromptError};
pub use limits::{MAX_PROMPT_BYTES, MAX_TEMPLATE_BYTES, MAX_TOKENIZER_FILE_BYTES};
pub use memo::{CutRule, Cuts, Fold, Folded, Memo, MemoStats, NewlineCuts, Obstacle, Place, Tenant};
pub use model::{ChatRenderer, ModelFiles, ModelPrompt};
pub use prepared::{Prepared, PreparedText, PromptTokens};
pub use request::{CompletionRequest, PromptRequest, TokensRequest};
pub use responses::ResponsesRequest;
pub use task::{Task, Truncate, TruncationSide};
pub use template::{Clock, ContentFormat, FixedClock, SystemClock};
pub use tokenizer::{Encode, EncodeError, EncoderChoice, EncoderKind, SpecialTokens, TokenIds};
pub use version::{
    AnthropicRules, ContentDetection, EmptyMessages, EngineVersion, InlineSystem, OddArguments,
    OverrideError, ParseVersionError, ReasoningEfforts, RenderingRules, ResponsesRules,
};
