//! A request to be decided, checked: what the wire could say wrong is ruled out.

use tokio::time::Instant;
use warmpath_core::outcome;
use warmpath_core::rank::Policy;
use warmpath_prompt::{ChatRequest, Task, Truncate};

use super::Reason;
use super::measure::BYTES_PER_TOKEN;
use crate::answers::ResponseKey;

/// What the filter asks.
#[derive(Debug)]
pub struct Question {
    /// As the request names it; empty: the only configured one.
    pub model: String,
    pub prompt: Prompt,
    /// The tenant's part of the key namespace.
    pub cache_salt: Option<String>,
    /// What the engine does with the prompt.
    pub task: Task,
    pub add_special_tokens: Option<bool>,
    pub truncate: Truncate,
    /// The response that it goes on from, or is about.
    pub previous_response: Option<ResponseKey>,
    /// Size of the client's body.
    pub body_bytes: u64,
    /// At least 1.
    pub sequences_per_prompt: u32,
    /// None: a configured one, by the key.
    pub policy: Option<Policy>,
    /// What belongs together has the same key; 0: nothing is told.
    pub group_key: u64,
    /// When the answer has to leave; later ones find nobody waiting.
    pub answer_by: Option<Instant>,
}

/// The prompts of the request, in the form they came in.
#[derive(Debug)]
pub enum Prompt {
    /// At least one, none of them empty lists of prompts.
    Texts(Vec<String>),
    Tokens(Vec<Vec<u32>>),
    Chat(Box<Chat>),
    /// A `/v1/responses` request.
    Responses(Members),
    /// A `/v1/messages` request.
    Messages(Members),
    /// None that could be scored.
    Absent(Reason),
}

/// A request of which the engine makes a chat: a JSON object with those members that can reach the token ids.
#[derive(Debug)]
pub struct Members {
    pub members: Vec<u8>,
    pub has_media: bool,
}

/// A chat request: slices of the client's JSON.
#[derive(Debug, Default)]
pub struct Chat {
    pub messages: Vec<u8>,
    pub tools: Option<Vec<u8>>,
    pub documents: Option<Vec<u8>>,
    pub template_kwargs: Option<Vec<u8>>,
    pub chat_template: Option<String>,
    pub add_generation_prompt: Option<bool>,
    pub continue_final_message: Option<bool>,
    pub reasoning_effort: Option<String>,
    pub tool_choice: Option<Vec<u8>>,
    pub has_media: bool,
    /// Ids that newer engines serve in place of the messages.
    pub prompt_token_ids: Option<Vec<u32>>,
}

// === impl Question ===

impl Question {
    /// The engine has nothing to compute for it.
    fn computes_nothing(&self) -> bool {
        matches!(self.prompt, Prompt::Absent(Reason::Filter(outcome::Reason::NoPrefill)))
    }

    /// Sequences that the engine will make of the whole request.
    pub fn sequences(&self) -> u32 {
        if self.computes_nothing() {
            return 0;
        }
        u32::try_from(self.prompt.count()).unwrap_or(u32::MAX).saturating_mul(self.sequences_per_prompt)
    }

    /// What to estimate its size by, in bytes: the prompt, where there is one, as bodies hold much that is none; a picture
    /// of megabytes is some hundred tokens.
    pub fn estimated_bytes(&self) -> u64 {
        match &self.prompt {
            _ if self.computes_nothing() => 0,
            Prompt::Absent(_) => self.body_bytes,
            prompt => u64::try_from(prompt.bytes()).unwrap_or(u64::MAX).min(self.body_bytes),
        }
    }
}

// === impl Prompt ===

impl Prompt {
    /// Prompts in the request, at least 1.
    pub fn count(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.len().max(1),
            Self::Tokens(prompts) => prompts.len().max(1),
            Self::Chat(_) | Self::Responses(_) | Self::Messages(_) | Self::Absent(_) => 1,
        }
    }

    /// Tokens of all prompts but the first; estimated where they are text.
    pub fn further_tokens(&self) -> u64 {
        match self {
            Self::Texts(texts) => {
                texts.iter().skip(1).map(|text| text.len() as u64).sum::<u64>() / BYTES_PER_TOKEN
            }
            Self::Tokens(prompts) => prompts.iter().skip(1).map(|prompt| prompt.len() as u64).sum(),
            Self::Chat(_) | Self::Responses(_) | Self::Messages(_) | Self::Absent(_) => 0,
        }
    }

    /// Whether the prompt's tokens are made here, and the engine's `usage.prompt_tokens` counts them all.
    pub fn is_counted_by_usage(&self) -> bool {
        match self {
            Self::Texts(_) | Self::Responses(_) | Self::Messages(_) => true,
            Self::Chat(chat) => chat.prompt_token_ids.is_none(),
            Self::Tokens(_) | Self::Absent(_) => false,
        }
    }

    /// Tokens of the first prompt, where it needs no tokenizer.
    pub fn token_count(&self) -> Option<usize> {
        match self {
            Self::Tokens(prompts) => Some(prompts.first().map_or(0, Vec::len)),
            Self::Texts(_) | Self::Chat(_) | Self::Responses(_) | Self::Messages(_) | Self::Absent(_) => None,
        }
    }

    /// Memory that it takes, roughly.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.iter().map(String::len).sum(),
            Self::Tokens(prompts) => prompts.iter().map(|prompt| size_of_val(prompt.as_slice())).sum(),
            Self::Chat(chat) => chat.bytes(),
            Self::Responses(request) | Self::Messages(request) => request.members.len(),
            Self::Absent(_) => 0,
        }
    }
}

// === impl Chat ===

impl Chat {
    /// The request as the renderer takes it.
    pub(super) fn request(
        &self,
        task: Task,
        add_special_tokens: Option<bool>,
        truncate: Truncate,
    ) -> ChatRequest<'_> {
        ChatRequest {
            messages: &self.messages,
            tools: self.tools.as_deref(),
            documents: self.documents.as_deref(),
            template_kwargs: self.template_kwargs.as_deref(),
            chat_template: self.chat_template.as_deref(),
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self.continue_final_message,
            reasoning_effort: self.reasoning_effort.as_deref(),
            tool_choice: self.tool_choice.as_deref(),
            add_special_tokens,
            truncate,
            task,
            has_media: self.has_media,
            prompt_token_ids: self.prompt_token_ids.as_deref(),
        }
    }

    fn bytes(&self) -> usize {
        let parts = [&self.tools, &self.documents, &self.template_kwargs, &self.tool_choice];
        let template = self.chat_template.as_ref().map_or(0, String::len);
        let ids = self.prompt_token_ids.as_deref().map_or(0, size_of_val);
        self.messages.len() + template + ids + parts.into_iter().flatten().map(Vec::len).sum::<usize>()
    }
}
