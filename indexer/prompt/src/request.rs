//! The requests whose prompts can be tokenized: one type per shape of body.

use crate::anthropic::MessagesRequest;
use crate::chat::ChatRequest;
use crate::responses::ResponsesRequest;

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

/// How the body asks for its prompt to be truncated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truncate {
    /// `truncate_prompt_tokens`, where given: the number of tokens to keep, -1 for as many as the model takes.
    pub tokens: Option<i64>,
    /// `truncation_side`, where given.
    pub side: Option<TruncationSide>,
    /// The request's bound of its output, in tokens, where known (0: it gives none). Up to 0.31 it makes room where
    /// `tokens` is -1.
    pub max_output_tokens: Option<u32>,
}

/// The side of a prompt that is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationSide {
    Left,
    Right,
    /// A value that engines refuse, those that read it.
    Unknown,
}

/// What the engine does with the prompt. Some defaults depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    #[default]
    Generate,
    /// Embeddings and their like: prompts are truncated at their end, chats get no generation prompt.
    Embed,
}

impl From<&str> for TruncationSide {
    fn from(side: &str) -> Self {
        match side {
            "left" => TruncationSide::Left,
            "right" => TruncationSide::Right,
            _ => TruncationSide::Unknown,
        }
    }
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
