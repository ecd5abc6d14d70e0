//! What a request asks for besides its prompt, whatever its shape.

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
