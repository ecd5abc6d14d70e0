//! One model: its tokenizer, its chat templates, the rules of the engine that serves it.
//!
//! Loaded once, off the hot path (seconds: the vocabulary is read by two encoders, which are then compared); then shared
//! between threads.

mod added;
mod family;
mod files;
mod source;
mod templates;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value as Json};

use crate::anthropic::{self, MessagesRequest};
use crate::chat::{self, ChatInput, ChatRequest, Rendered, TemplateInput};
use crate::completion;
use crate::error::{LoadError, PromptError};
use crate::forwarded;
use crate::harmony::Harmony;
use crate::limits::{MAX_CONFIG_FILE_BYTES, MAX_TOKENIZER_FILE_BYTES};
use crate::media::MediaCuts;
use crate::memo::{Cuts, Fold, Folded, Memo, Parts, Tenant, Text};
use crate::prepared::{Prepared, PromptTokens};
use crate::request::PromptRequest;
use crate::responses::{self, Converted, ResponsesRequest};
use crate::task::{Task, Truncate};
use crate::template::{Clock, ContentFormat, SystemClock};
use crate::tokenizer::{
    Chosen, Encode, EncoderChoice, EncoderKind, Loaded, ModelLength, SpecialTokens, Truncation,
};
use crate::version::{EngineVersion, InlineSystem, RenderingRules};

pub use family::ChatRenderer;
use family::Family;
use templates::ChatTemplates;

/// Where a model's files are, and what must be known of the engine that serves it.
#[derive(Clone)]
pub struct ModelFiles {
    /// Folder with `tokenizer.json`, `tokenizer_config.json` and, where there are, `chat_template.jinja` and
    /// `config.json`.
    pub dir: PathBuf,
    /// The engine's `--chat-template`, where it has one.
    pub chat_template: Option<PathBuf>,
    /// The engine's `--chat-template-content-format`; `None`: it detects it.
    pub content_format: Option<ContentFormat>,
    pub engine_version: EngineVersion,
    /// The engine's `--max-model-len`, in tokens; needed for `truncate_prompt_tokens: -1` only.
    pub max_model_len: Option<usize>,
    /// The engine's `--trust-request-chat-template`.
    pub trust_request_template: bool,
    /// The engine's `--default-chat-template-kwargs`.
    pub default_template_kwargs: Map<String, Json>,
    /// The engine's `--exclude-tools-when-tool-choice-none`.
    pub exclude_tools_when_none: bool,
    pub chat_renderer: ChatRenderer,
    /// Rules of [`RenderingRules`] that differ from those of `engine_version`: name, in a group `group.name`, to value.
    pub rule_overrides: Map<String, Json>,
    /// The encoder to use; `None`: the fastest that gives the reference's ids. For tests and measurements.
    pub encoder: Option<EncoderKind>,
    /// The engine's local time.
    pub clock: Arc<dyn Clock>,
}

/// A loaded model.
pub struct ModelPrompt {
    encoder: Box<dyn Encode>,
    encoder_choice: EncoderChoice,
    parts: Parts,
    /// Another one for each that is loaded, so that a memory of one is not taken for that of another.
    generation: u64,
    chat: Result<ChatTemplates, PromptError>,
    /// Where the model's chats are in the harmony encoding; then there are no templates.
    harmony: Option<Result<Harmony, PromptError>>,
    chat_settings: chat::Settings,
    length: ModelLength,
    media_cuts: MediaCuts,
    anthropic: anthropic::Conversion,
}

// === impl ModelFiles ===

impl ModelFiles {
    /// The files in `dir`, served by the newest known engine with its default settings.
    pub fn in_dir(dir: impl Into<PathBuf>) -> Self {
        ModelFiles {
            dir: dir.into(),
            chat_template: None,
            content_format: None,
            engine_version: EngineVersion::default(),
            max_model_len: None,
            trust_request_template: false,
            default_template_kwargs: Map::new(),
            exclude_tools_when_none: false,
            chat_renderer: ChatRenderer::Detect,
            rule_overrides: Map::new(),
            encoder: None,
            clock: Arc::new(SystemClock::local()),
        }
    }
}

// === impl ModelPrompt ===

impl ModelPrompt {
    /// Reads and compiles everything. A model without a usable chat template still serves completions; its chats get
    /// the reason `not_renderable`. A template that does not compile is an error, because the engine would not start
    /// serving chats with it either.
    pub fn load(files: &ModelFiles) -> Result<Self, LoadError> {
        if !files.dir.is_dir() {
            return Err(LoadError::NotADirectory { path: files.dir.clone() });
        }
        let tokenizer_path = files.dir.join("tokenizer.json");
        let tokenizer_json = files::read_bounded(
            &tokenizer_path,
            MAX_TOKENIZER_FILE_BYTES,
            "copy tokenizer.json of the model there (a vocabulary in another format must be converted)",
        )?;
        let config_path = files.dir.join("tokenizer_config.json");
        let config = files::read_object(&config_path, MAX_CONFIG_FILE_BYTES)?.unwrap_or_default();
        let tokenizer_json = added::complete(&tokenizer_json, &config);
        let loaded = Loaded::load(&tokenizer_path, &tokenizer_json, files.encoder)?;
        let reference = &loaded.reference;
        let model_config =
            files::read_object(&files.dir.join("config.json"), MAX_CONFIG_FILE_BYTES)?.unwrap_or_default();
        let family = match files.chat_renderer {
            ChatRenderer::Jinja => Family::Jinja,
            ChatRenderer::Detect => Family::detect(&files.dir, &model_config, reference),
        };
        let rules = RenderingRules::of(files.engine_version).overridden(&files.rule_overrides)?;
        let unusable = |why: String| LoadError::UnusableTokenizer { path: tokenizer_path.clone(), why };
        let media_cuts = MediaCuts::of(reference).map_err(|error| unusable(error.to_string()))?;
        let chat = match family {
            Family::Jinja => ChatTemplates::load(files, rules, &config_path, &config)?,
            other => Err(PromptError::not_renderable(other.describe())),
        };
        // An engine asks the template although it renders without it.
        let take_later_system = chat.as_ref().map_or_else(
            |_| templates::take_later_system(files, &config_path, &config),
            |templates| templates.take_later_system,
        );
        let harmony = (family == Family::Harmony).then(|| {
            let clock = Arc::clone(&files.clock);
            Harmony::new(files.engine_version, &rules, reference, files.exclude_tools_when_none, clock)
        });
        let Chosen { encoder, choice } = loaded.choose().map_err(unusable)?;
        let mut model = ModelPrompt {
            parts: Parts::of(&tokenizer_path, &tokenizer_json, &*encoder, files.encoder),
            generation: next_generation(),
            encoder,
            encoder_choice: choice,
            chat,
            harmony,
            chat_settings: chat::Settings {
                rules,
                content_format: files.content_format,
                trust_request_template: files.trust_request_template,
                default_template_kwargs: files.default_template_kwargs.clone(),
                exclude_tools_when_none: files.exclude_tools_when_none,
                special_tokens: files::special_tokens(&config),
                clock: Arc::clone(&files.clock),
            },
            length: ModelLength {
                max_model_len: files.max_model_len,
                fit_reserves_output: rules.fit_reserves_output,
                reads_side: rules.reads_truncation_side,
                reads_embedding_side: rules.reads_embedding_truncation_side,
            },
            media_cuts,
            anthropic: anthropic::Conversion::default(),
        };
        model.anthropic = model.find_conversion(files.chat_template.is_some(), take_later_system);
        Ok(model)
    }

    /// What the templates decide about the conversion of `/v1/messages`.
    fn find_conversion(&self, has_explicit_template: bool, take_later_system: bool) -> anthropic::Conversion {
        let rules = &self.chat_settings.rules.anthropic;
        let merges_inline_system = match rules.inline_system {
            InlineSystem::Refused => false,
            InlineSystem::Merged => true,
            InlineSystem::KeptByExplicitTemplate => !(has_explicit_template && take_later_system),
            InlineSystem::KeptByTemplate => !take_later_system,
        };
        let probe = |effort| {
            let request = ChatRequest {
                messages: br#"[{"role": "user", "content": "Hi"}]"#,
                reasoning_effort: Some(effort),
                ..ChatRequest::default()
            };
            self.render_chat(&request).ok()
        };
        // Where a template takes no thinking for an effort of its own, or not at all, the engine asks for little.
        let none = probe("none").filter(|_| rules.reads_thinking_config);
        let is_ignored = none
            .is_none_or(|none| anthropic::EFFORTS.iter().any(|effort| probe(effort).as_ref() == Some(&none)));
        let disabled_effort = if is_ignored { "low" } else { "none" };
        anthropic::Conversion { merges_inline_system, disabled_effort }
    }

    /// Everything up to the work of the tokenizer.
    pub fn prepare<'a>(&self, request: impl Into<PromptRequest<'a>>) -> Result<Prepared<'a>, PromptError> {
        match request.into() {
            PromptRequest::Completion(request) => {
                let truncation = Truncation::resolve(request.truncate, request.task, self.length)?;
                completion::prepare(&request, truncation)
            }
            PromptRequest::Tokens(request) => {
                let truncation = Truncation::resolve(request.truncate, request.task, self.length)?;
                Ok(Prepared::Ids(PromptTokens::whole(truncation.cut(request.ids)?)))
            }
            PromptRequest::Chat(request) => self.prepare_chat(&request),
            PromptRequest::Responses(request) => self.prepare_responses(&request),
            PromptRequest::Messages(request) => self.prepare_messages(&request),
        }
    }

    fn prepare_chat<'a>(&self, request: &ChatRequest<'_>) -> Result<Prepared<'a>, PromptError> {
        let rules = &self.chat_settings.rules;
        let reads_ids = rules.reads_prompt_token_ids && !(rules.checks_prompt_token_ids && request.has_media);
        if let Some(ids) = request.prompt_token_ids.filter(|_| reads_ids)
            && let Some(ids) = forwarded::take(rules, ids.to_vec())?
        {
            // The engine neither renders nor truncates.
            return Ok(Prepared::Ids(PromptTokens::whole(ids)));
        }
        if let Some(harmony) = &self.harmony {
            return harmony.as_ref().map_err(Clone::clone)?.chat(request)?.prepare(&*self.encoder);
        }
        let truncation = Truncation::resolve(request.truncate, request.task, self.length)?;
        let special = request.add_special_tokens.map_or(SpecialTokens::Omit, SpecialTokens::from);
        let rendered = self.render(chat::read(&self.chat_settings, request)?)?;
        self.prepare_rendered(rendered, special, truncation)
    }

    fn prepare_messages<'a>(&self, request: &MessagesRequest<'_>) -> Result<Prepared<'a>, PromptError> {
        let rules = &self.chat_settings.rules;
        let converted = anthropic::convert(&rules.anthropic, self.anthropic, request)?;
        let has_media = request.has_media || chat::has_media(&converted.messages);
        if let Some(ids) = forwarded::read(rules, converted.transfer.as_ref(), has_media)? {
            return Ok(Prepared::Ids(PromptTokens::whole(ids)));
        }
        let Some(harmony) = &self.harmony else {
            let rendered = self.render(converted.into_chat(&self.chat_settings, has_media)?)?;
            return self.prepare_rendered(rendered, SpecialTokens::Omit, Truncation::None);
        };
        let harmony = harmony.as_ref().map_err(Clone::clone)?;
        if has_media {
            return Err(PromptError::Media);
        }
        harmony.messages(converted)?.prepare(&*self.encoder)
    }

    fn prepare_responses<'a>(&self, request: &ResponsesRequest<'_>) -> Result<Prepared<'a>, PromptError> {
        if let Some(harmony) = &self.harmony {
            if request.has_media {
                return Err(PromptError::Media);
            }
            return harmony
                .as_ref()
                .map_err(Clone::clone)?
                .responses(request.members)?
                .prepare(&*self.encoder);
        }
        let Converted { chat, is_truncated, transfer } = responses::read(&self.chat_settings, request)?;
        let has_media =
            request.has_media || chat.messages.as_array().is_some_and(|list| chat::has_media(list));
        if let Some(ids) = forwarded::read(&self.chat_settings.rules, transfer.as_ref(), has_media)? {
            return Ok(Prepared::Ids(PromptTokens::whole(ids)));
        }
        let truncate = Truncate {
            tokens: is_truncated.then_some(-1),
            side: None,
            max_output_tokens: request.max_output_tokens,
        };
        let truncation = Truncation::resolve(truncate, Task::Generate, self.length)?;
        // The engine's default for texts, which this endpoint does not let a request change: a template that writes the
        // first special token gets a second one before it.
        self.prepare_rendered(self.render(chat)?, SpecialTokens::Add, truncation)
    }

    fn prepare_rendered<'a>(
        &self,
        rendered: Rendered,
        special: SpecialTokens,
        truncation: Truncation,
    ) -> Result<Prepared<'a>, PromptError> {
        let Rendered { text, before_media } = rendered;
        let Some(before_media) = before_media else {
            return Ok(Prepared::whole_text(text, special, truncation));
        };
        let is_cut = truncation != Truncation::None;
        match self.media_cuts.beginning(&text, before_media).filter(|_| !is_cut) {
            Some(beginning) => Ok(Prepared::beginning(beginning.to_owned(), special)),
            None => Err(PromptError::Media),
        }
    }

    /// The work of the tokenizer.
    pub fn encode(&self, prepared: Prepared<'_>) -> Result<PromptTokens, PromptError> {
        match prepared {
            Prepared::Text(text) => text.encode(&*self.encoder),
            Prepared::Ids(tokens) => Ok(tokens),
        }
    }

    /// The work of the tokenizer as far as it is new to `memo`, and what `fold` makes of the ids. Equal to folding the ids
    /// of [`encode`](Self::encode).
    pub fn fold<F: Fold>(
        &self,
        prepared: Prepared<'_>,
        memo: &Memo<F>,
        tenant: Tenant<'_>,
        fold: &F,
    ) -> Result<Folded<F>, PromptError> {
        match prepared {
            // Of a text that is cut, or not known to its end, not all ids count.
            Prepared::Text(text) if text.is_whole() && !text.is_truncated() => {
                let model = Text {
                    text: &text.text,
                    special: text.special,
                    encoder: &*self.encoder,
                    parts: &self.parts,
                    generation: self.generation,
                };
                memo.fold(model, tenant, fold)
                    .map_err(|error| PromptError::Encoder { why: error.to_string() })
            }
            other => Ok(Folded::of(fold, &self.encode(other)?)),
        }
    }

    /// Both steps.
    pub fn tokens<'a>(&self, request: impl Into<PromptRequest<'a>>) -> Result<PromptTokens, PromptError> {
        self.encode(self.prepare(request)?)
    }

    fn render(&self, input: ChatInput<'_>) -> Result<Rendered, PromptError> {
        let templates = self.chat.as_ref().map_err(Clone::clone)?;
        chat::render(&self.chat_settings, |has_tools| templates.choose(has_tools), input)
    }

    /// The text that a chat becomes before it is encoded. Of one with media, the text that the engine's template makes:
    /// placeholders where media are.
    pub fn render_chat(&self, request: &ChatRequest<'_>) -> Result<String, PromptError> {
        if let Some(harmony) = &self.harmony {
            return Ok(harmony.as_ref().map_err(Clone::clone)?.chat(request)?.to_text());
        }
        self.render(chat::read(&self.chat_settings, request)?).map(|rendered| rendered.text)
    }

    /// The text that the template makes of messages which already have the form it takes: the engine's template library
    /// alone, without what the engine does to a request before. For golden data and tools.
    pub fn render_template(&self, input: &TemplateInput<'_>) -> Result<String, PromptError> {
        let templates = self.chat.as_ref().map_err(Clone::clone)?;
        chat::render_template(&self.chat_settings, |has_tools| templates.choose(has_tools), input)
    }

    /// Which encoder makes the ids, and why faster ones do not.
    pub fn encoder(&self) -> &EncoderChoice {
        &self.encoder_choice
    }

    /// Where the model's texts are cut for a [`Memo`], and why not at more places.
    pub fn cuts(&self) -> &Cuts {
        self.parts.cuts()
    }

    /// The content format that the model's template asks for; `None` where chats cannot be rendered.
    pub fn content_format(&self) -> Option<ContentFormat> {
        let templates = self.chat.as_ref().ok()?;
        Some(templates.choose(false)?.content_format())
    }
}

fn next_generation() -> u64 {
    static LOADED: AtomicU64 = AtomicU64::new(0);
    LOADED.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests;
