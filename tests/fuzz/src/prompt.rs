//! Chats, from their JSON to token ids. Input: a byte that chooses a template, a byte of switches, then a request body, or
//! with [`RAW`] only the value of `messages`.
//!
//! Rendering is a function of the request; the ids of a rendered text, written out again, are that text; and ids do not
//! depend on whether the steps are taken one by one. How long an input takes is watched by the fuzzer's own limit.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use warmpath_core::path::KnownPath;
use warmpath_core::request::{self, ChatPrompt, Prompt};
use warmpath_prompt::{
    ChatRequest, FixedClock, MAX_PROMPT_BYTES, ModelFiles, ModelPrompt, Prepared, PreparedText, PromptTokens,
    Truncate,
};

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

/// What each token stands for.
static TOKENS: LazyLock<HashMap<u32, Vec<u8>>> = LazyLock::new(|| {
    let json = std::fs::read(folder().join("tokenizer.json")).unwrap_or_default();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap_or_default();
    let id =
        |value: &serde_json::Value| value.as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(u32::MAX);
    let vocabulary = json.pointer("/model/vocab").and_then(|vocabulary| vocabulary.as_object());
    let words = vocabulary.into_iter().flatten().map(|(word, number)| (id(number), bytes_of(word)));
    let added = json.pointer("/added_tokens").and_then(|added| added.as_array());
    let added = added.into_iter().flatten().filter_map(|token| {
        Some((id(token.get("id")?), token.get("content")?.as_str()?.as_bytes().to_vec()))
    });
    words.chain(added).collect()
});

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("model")
}

/// Byte-level vocabularies write a byte as a character of its own: printable Latin-1 as itself, the others from U+0100 on.
fn bytes_of(word: &str) -> Vec<u8> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let others: Vec<u8> = (0..=u8::MAX).filter(|byte| !printable(byte)).collect();
    let byte = |char: char| match u8::try_from(char).ok().filter(printable) {
        Some(byte) => Some(byte),
        None => others.get(usize::try_from(u32::from(char).checked_sub(0x100)?).ok()?).copied(),
    };
    word.chars().filter_map(byte).collect()
}

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
    let prepared = model.prepare(*request);
    assert_eq!(prepared, model.prepare(*request));
    let Ok(Prepared::Text(text)) = prepared else { return };
    assert!(text.text().len() <= MAX_PROMPT_BYTES, "{} bytes", text.text().len());
    let encoded = model.encode(Prepared::Text(text.clone()));
    assert_eq!(encoded, model.tokens(*request));
    if let Ok(tokens) = encoded {
        check_tokens(&text, &tokens);
    }
}

fn check_tokens(text: &PreparedText<'_>, tokens: &PromptTokens) {
    let ids = tokens.ids.as_slice();
    let written: Vec<u8> = ids.iter().filter_map(|id| TOKENS.get(id)).flatten().copied().collect();
    if text.is_truncated() {
        assert!(
            text.text().as_bytes().ends_with(&written),
            "{} is no end of the text",
            written.escape_ascii()
        );
    } else {
        assert_eq!(written.escape_ascii().to_string(), text.text().as_bytes().escape_ascii().to_string());
    }
}
