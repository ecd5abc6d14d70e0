//! Prompt → tokens → block keys: the long part of a decision, done before any lock is taken.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::RwLock;
use warmpath_kv::{Index, Namespace, PromptKeys};
use warmpath_prompt::{CompletionRequest, TokenIds, TokensRequest, Truncate};

use super::metrics::DecideMetrics;
use super::models::{Model, Models};
use super::{Prompt, Question, Reason};
use crate::fleet::ModelIndex;

/// Bytes of text per token, where nothing better is known: English prose and code have 3.5 to 4.5.
pub(super) const BYTES_PER_TOKEN: u64 = 4;

/// Everything that measuring needs, shared with the pool's threads.
#[derive(Debug)]
pub(super) struct Measurer {
    pub(super) models: Models,
    pub(super) index: Arc<RwLock<Index>>,
    pub(super) metrics: DecideMetrics,
}

/// What is known of a prompt.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) prompt_tokens: u32,
    /// Tokens of the request's further prompts; estimated where they are text.
    pub(super) further_tokens: u64,
    /// The only prompt of its request. Of several, an engine reports a sum that no forecast can be held against.
    pub(super) single: bool,
    pub(super) keys: PromptKeys,
}

/// The part of a question that measuring consumes.
pub(super) struct Job {
    pub(super) model: ModelIndex,
    pub(super) prompt: Prompt,
    pub(super) cache_salt: Option<String>,
    pub(super) add_special_tokens: Option<bool>,
    pub(super) truncate_prompt_tokens: Option<i64>,
}

impl Job {
    /// What measuring needs of `question`, which keeps the rest.
    pub(super) fn take(question: &mut Question, model: ModelIndex) -> Self {
        Self {
            model,
            prompt: std::mem::replace(&mut question.prompt, Prompt::Tokens(Vec::new())),
            cache_salt: question.cache_salt.take(),
            add_special_tokens: question.add_special_tokens,
            truncate_prompt_tokens: question.truncate_prompt_tokens,
        }
    }
}

impl Measurer {
    /// Runs the whole of it on the calling thread.
    pub(super) fn measure(&self, job: Job) -> Result<Measured, Reason> {
        let model = self.models.get(job.model).ok_or(Reason::UnknownModel)?;
        let single = job.prompt.count() == 1;
        let salt = job.cache_salt.clone();
        let begun = Instant::now();
        let (tokens, further_tokens) = tokenize(model, job)?;
        let tokenized = Instant::now();
        self.metrics.tokenize.observe((tokenized - begun).as_secs_f64());

        let namespace = Namespace { model: &model.name, lora: None, salt: salt.as_deref() };
        let plan = self.index.read().key_plan();
        let keys = plan.keys(&namespace, tokens.as_slice());
        self.metrics.keys.observe(tokenized.elapsed().as_secs_f64());
        let prompt_tokens = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
        Ok(Measured { prompt_tokens, further_tokens, single, keys })
    }
}

/// The tokens of the first prompt, and the number of those of the others.
fn tokenize(model: &Model, job: Job) -> Result<(TokenIds, u64), Reason> {
    let renderer = model.renderer.as_ref();
    let (special, truncate) = (job.add_special_tokens, Truncate { tokens: job.truncate_prompt_tokens });
    match job.prompt {
        Prompt::Absent(reason) => Err(reason),
        Prompt::Tokens(prompts) => {
            let mut prompts = prompts.into_iter();
            let first = prompts.next().unwrap_or_default();
            let tokens = match (renderer, truncate.tokens) {
                (_, None) => TokenIds::from(first),
                (Some(renderer), Some(_)) => {
                    let request = TokensRequest { ids: first, truncate };
                    renderer.tokens(request).map_err(|e| Reason::from(&e))?.ids
                }
                (None, Some(_)) => return Err(Reason::NoTokenizer),
            };
            Ok((tokens, prompts.map(|prompt| prompt.len() as u64).sum()))
        }
        Prompt::Texts(texts) => {
            let renderer = renderer.ok_or(Reason::NoTokenizer)?;
            let mut texts = texts.into_iter();
            let first = texts.next().unwrap_or_default();
            let request = CompletionRequest { text: &first, add_special_tokens: special, truncate };
            let tokens = renderer.tokens(request).map_err(|e| Reason::from(&e))?.ids;
            let further_bytes: u64 = texts.map(|text| text.len() as u64).sum();
            Ok((tokens, further_bytes / BYTES_PER_TOKEN))
        }
        Prompt::Chat(chat) => {
            let renderer = renderer.ok_or(Reason::NoTokenizer)?;
            let request = chat.request(special, truncate);
            let tokens = renderer.tokens(request).map_err(|e| Reason::from(&e))?.ids;
            Ok((tokens, 0))
        }
    }
}
