//! The members of a request body that we know, each as it stands in the body.

use crate::json::{Fault, Raw, Scanner, unescape};

macro_rules! fields {
    ($($variant:ident = $name:literal,)*) => {
        /// A member of the body's object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Field { $($variant,)* }

        impl Field {
            const COUNT: usize = [$(Self::$variant,)*].len();

            fn by_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }

            /// Its name in the body.
            pub(super) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

fields! {
    Model = "model",
    Messages = "messages",
    Prompt = "prompt",
    PromptEmbeds = "prompt_embeds",
    Input = "input",
    CacheSalt = "cache_salt",
    PromptCacheKey = "prompt_cache_key",
    MaxTokens = "max_tokens",
    MaxCompletionTokens = "max_completion_tokens",
    MaxOutputTokens = "max_output_tokens",
    N = "n",
    Stream = "stream",
    Echo = "echo",
    AddSpecialTokens = "add_special_tokens",
    TruncatePromptTokens = "truncate_prompt_tokens",
    TruncationSide = "truncation_side",
    KvTransferParams = "kv_transfer_params",
    Tools = "tools",
    ToolChoice = "tool_choice",
    Documents = "documents",
    ChatTemplate = "chat_template",
    ChatTemplateKwargs = "chat_template_kwargs",
    AddGenerationPrompt = "add_generation_prompt",
    ContinueFinalMessage = "continue_final_message",
    ReasoningEffort = "reasoning_effort",
    Instructions = "instructions",
    Reasoning = "reasoning",
    Text = "text",
    Truncation = "truncation",
    PreviousInputMessages = "previous_input_messages",
    PreviousResponseId = "previous_response_id",
    Store = "store",
    System = "system",
    Thinking = "thinking",
    OutputConfig = "output_config",
}

/// What was found of them. Of equal keys the last won.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    values: [Option<Raw<'a>>; Field::COUNT],
}

impl<'a> Fields<'a> {
    /// Reads a JSON object and what it holds, to the end of the text.
    pub(super) fn read(text: &'a str) -> Result<Self, Fault> {
        let mut values = [None; Field::COUNT];
        let mut scanner = Scanner::new(text);
        scanner.object(|s, key| {
            let value = s.value()?;
            let field = unescape(key).ok().and_then(|key| Field::by_name(&key));
            if let Some(place) = field.and_then(|field| values.get_mut(field as usize)) {
                *place = Some(value);
            }
            Ok(())
        })?;
        scanner.finish()?;
        Ok(Self { values })
    }

    /// The value of a member; none where it is absent or null, which engines take alike.
    pub(super) fn given(&self, field: Field) -> Option<Raw<'a>> {
        self.values.get(field as usize).copied().flatten().filter(|raw| !raw.is_null())
    }
}
