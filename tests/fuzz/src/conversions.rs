//! Requests that an engine converts before it renders them, from their JSON to token ids: `/v1/responses`, `/v1/messages`,
//! and every request to gpt-oss. Input: a byte that chooses model and release, a byte of switches, then the members of a
//! request, or the value of `messages` for a [`CHAT`].
//!
//! What holds of a chat (see [`prompt`](crate::prompt)) holds of these; and the ids of a harmony chat, written out again,
//! are its text.

use std::sync::{Arc, LazyLock};

use warmpath_prompt::{
    ChatRequest, EncoderKind, EngineVersion, FixedClock, MessagesRequest, ModelFiles, ModelPrompt,
    PromptRequest, ResponsesRequest,
};

use crate::model::{check_prompt, folder, harmony_folder};

/// Switches: the path.
const PATHS: u8 = 3;
const RESPONSES: u8 = 0;
const MESSAGES: u8 = 1;
const CHAT: u8 = 2;
/// Switch: the filter has seen media.
const MEDIA: u8 = 4;

/// Minor numbers of releases in which something about conversions changed, each with a template of `model/`; `None`: the
/// harmony encoding.
const MODELS: [(u16, Option<&str>); 16] = [
    (13, Some("strings")),
    (16, Some("parts")),
    (17, Some("strings")),
    (18, Some("loops")),
    (20, Some("parts")),
    (21, Some("strings")),
    (22, Some("parts")),
    (23, Some("loops")),
    (24, Some("strings")),
    (25, Some("parts")),
    (27, Some("strings")),
    (31, Some("parts")),
    (32, Some("strings")),
    (16, None),
    (23, None),
    (32, None),
];

static LOADED: LazyLock<Vec<ModelPrompt>> = LazyLock::new(|| {
    let load = |(minor, template): &(u16, Option<&str>)| {
        let files = match template {
            Some(template) => ModelFiles {
                chat_template: Some(folder().join(format!("{template}.jinja"))),
                ..ModelFiles::in_dir(folder())
            },
            None => ModelFiles::in_dir(harmony_folder()),
        };
        ModelPrompt::load(&ModelFiles {
            engine_version: EngineVersion::new(0, *minor),
            max_model_len: Some(64),
            encoder: Some(EncoderKind::Reference),
            clock: Arc::new(FixedClock(Default::default())),
            ..files
        })
    };
    let models: Result<Vec<_>, _> = MODELS.iter().map(load).collect();
    assert!(models.is_ok(), "a model of the checks cannot be loaded: {:?}", models.err());
    models.unwrap_or_default()
});

/// Checks one request.
pub fn check(input: &[u8]) {
    let [number, switches, members @ ..] = input else { return };
    let Some(model) = LOADED.get(usize::from(*number) % MODELS.len()) else { return };
    let has_media = switches & MEDIA != 0;
    let request = || -> PromptRequest<'_> {
        match switches & PATHS {
            RESPONSES => {
                ResponsesRequest { members, has_media, max_output_tokens: Some(u32::from(*switches)) }.into()
            }
            MESSAGES => MessagesRequest { members, has_media }.into(),
            CHAT => chat(members, has_media).into(),
            _ => ChatRequest { continue_final_message: Some(true), ..chat(members, has_media) }.into(),
        }
    };
    // Of chats, the text that a harmony prompt reads like is known as well.
    let text = match request() {
        PromptRequest::Chat(chat) if model.content_format().is_none() => model.render_chat(&chat).ok(),
        _ => None,
    };
    check_prompt(model, [(); 2].map(|()| model.prepare(request())), text.as_deref());
}

fn chat(messages: &[u8], has_media: bool) -> ChatRequest<'_> {
    ChatRequest { messages, has_media, add_generation_prompt: Some(false), ..ChatRequest::default() }
}
