//! The requests whose prompts can be tokenized: one type per shape of body.

use crate::anthropic::MessagesRequest;
use crate::chat::ChatRequest;
use crate::responses::ResponsesRequest;
use crate::task::{Task, Truncate};

/// One prompt, as its request gives it.
#[derive(Clone, Debug)]
pub enum PromptRequest<'a> {
    /// A text of `/v1/completions` or `/v1/embeddings`.
    Completion(CompletionRequest<'a>),
    /// A prompt given as token ids.
    Tokens(TokensRequest),
    /// `/v1/chat/completions`, or `/v1/embeddings` with messages.
    Chat(ChatRequest<'a>),
    /// `/v1/responses`.
    Responses(ResponsesRequest<'a>),
    /// `/v1/messages`.
    Messages(MessagesRequest<'a>),
}

/// One text of a request and what it says about its encoding.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompletionRequest<'a> {
    pub text: &'a str,
    /// The engine's default for texts is true.
    pub add_special_tokens: Option<bool>,
    pub truncate: Truncate,
    pub task: Task,
}

/// Token ids that are used as they are, truncated where asked.
#[derive(Clone, Debug, Default)]
pub struct TokensRequest {
    pub ids: Vec<u32>,
    pub truncate: Truncate,
    pub task: Task,
}

impl<'a> From<CompletionRequest<'a>> for PromptRequest<'a> {
    fn from(request: CompletionRequest<'a>) -> Self {
        PromptRequest::Completion(request)
    }
}

impl From<TokensRequest> for PromptRequest<'_> {
    fn from(request: TokensRequest) -> Self {
        PromptRequest::Tokens(request)
    }
}

impl<'a> From<ChatRequest<'a>> for PromptRequest<'a> {
    fn from(request: ChatRequest<'a>) -> Self {
        PromptRequest::Chat(request)
    }
}

impl<'a> From<ResponsesRequest<'a>> for PromptRequest<'a> {
    fn from(request: ResponsesRequest<'a>) -> Self {
        PromptRequest::Responses(request)
    }
}

impl<'a> From<MessagesRequest<'a>> for PromptRequest<'a> {
    fn from(request: MessagesRequest<'a>) -> Self {
        PromptRequest::Messages(request)
    }
}
