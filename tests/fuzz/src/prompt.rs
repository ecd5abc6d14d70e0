//! Chats, from their JSON to token ids. Input: a byte that chooses a template, a byte of switches, then a request body, or
//! with [`RAW`] only the value of `messages`.
//!
//! Rendering is a function of the request; the ids of a rendered text, written out again, are that text; and a memory of
//! prompts changes nothing. How long an input takes is watched by the fuzzer's own limit.

use std::sync::{Arc, LazyLock};

use warmpath_core::path::KnownPath;
use warmpath_core::request::{self, ChatPrompt, Prompt};
use warmpath_prompt::{ChatRequest, FixedClock, ModelFiles, ModelPrompt, Truncate};

use crate::model::{check_prompt, folder};

/// Switch: what follows is the value of `messages` itself, which the filter has not looked at.
const RAW: u8 = 0x80;
/// Switch: a generation prompt, whatever the body says.
const GENERATION_PROMPT: u8 = 1;
/// Switch: the last message is continued.
const CONTINUE: u8 = 2;

/// Templates, each a file of `model/`. With the last one the engine trusts the template of the request.
const TEMPLATES: [&str; 5] = ["plain", "parts", "strings", "loops", "plain"];

static MODELS: LazyLock<Vec<ModelPrompt>> = LazyLock::new(|| {
    let load = |(index, template): (usize, &&str)| {
        ModelPrompt::load(&ModelFiles {
            chat_template: Some(folder().join(format!("{template}.jinja"))),
            trust_request_template: index + 1 == TEMPLATES.len(),
            clock: Arc::new(FixedClock(Default::default())),
            ..ModelFiles::in_dir(folder())
        })
    };
    let models: Result<Vec<_>, _> = TEMPLATES.iter().enumerate().map(load).collect();
    assert!(models.is_ok(), "the model of the checks cannot be loaded: {:?}", models.err());
    models.unwrap_or_default()
});

/// Checks one chat.
pub fn check(input: &[u8]) {
    let [template, switches, body @ ..] = input else { return };
    let Some(model) = MODELS.get(usize::from(*template) % TEMPLATES.len()) else { return };
    if switches & RAW != 0 {
        return check_request(
            model,
            &with_switches(ChatRequest { messages: body, ..Default::default() }, *switches),
        );
    }
    let Ok(read) = request::extract(KnownPath::Chat, body) else { return };
    if let Prompt::Chat(chat) = &read.prompt {
        let request = ChatRequest {
            add_special_tokens: read.add_special_tokens,
            truncate: Truncate { tokens: read.truncate_prompt_tokens, ..Default::default() },
            ..chat_request(chat)
        };
        check_request(model, &with_switches(request, *switches));
    }
}

fn chat_request<'a>(chat: &'a ChatPrompt<'_>) -> ChatRequest<'a> {
    ChatRequest {
        messages: chat.messages.as_bytes(),
        tools: chat.tools.map(str::as_bytes),
        documents: chat.documents.map(str::as_bytes),
        template_kwargs: chat.template_kwargs.map(str::as_bytes),
        tool_choice: chat.tool_choice.map(str::as_bytes),
        chat_template: chat.chat_template.as_deref(),
        add_generation_prompt: chat.add_generation_prompt,
        continue_final_message: chat.continue_final_message,
        reasoning_effort: chat.reasoning_effort.as_deref(),
        has_media: chat.has_media,
        ..Default::default()
    }
}

fn with_switches(request: ChatRequest<'_>, switches: u8) -> ChatRequest<'_> {
    ChatRequest {
        add_generation_prompt: (switches & GENERATION_PROMPT != 0)
            .then_some(true)
            .or(request.add_generation_prompt),
        continue_final_message: (switches & CONTINUE != 0).then_some(true).or(request.continue_final_message),
        ..request
    }
}

fn check_request(model: &ModelPrompt, request: &ChatRequest<'_>) {
    check_prompt(model, [(); 2].map(|()| model.prepare(*request)), None);
}
