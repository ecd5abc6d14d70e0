//! One model: its tokenizer, its chat templates, the rules of the engine that serves it.
//!
//! Loaded once, off the hot path (seconds: the vocabulary is read by two encoders, which are then compared); then shared
//! between threads.

mod family;
pub(crate) mod files;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::chat::{self, ChatRequest, TemplateInput};
use crate::completion;
use crate::error::{LoadError, PromptError};
use crate::harmony::Harmony;
use crate::limits::{MAX_CONFIG_FILE_BYTES, MAX_TOKENIZER_FILE_BYTES};
use crate::prepared::{Prepared, PromptTokens};
use crate::request::PromptRequest;
use crate::template::{ChatTemplate, Clock, ContentFormat, SystemClock, source};
use crate::tokenizer::{
    Chosen, Encode, EncoderChoice, EncoderKind, HuggingFace, ModelLength, SpecialTokens, Truncation, choose,
};
use crate::version::{EngineVersion, RenderingRules};

pub use family::ChatRenderer;
use family::Family;

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
    /// The encoder to use; `None`: the fastest that gives the reference's ids. For tests and measurements.
    pub encoder: Option<EncoderKind>,
    /// The engine's local time.
    pub clock: Arc<dyn Clock>,
}

/// A loaded model.
pub struct ModelPrompt {
    encoder: Box<dyn Encode>,
    encoder_choice: EncoderChoice,
    chat: Result<ChatTemplates, PromptError>,
    /// Where the model's chats are in the harmony encoding; then there are no templates.
    harmony: Option<Result<Harmony, PromptError>>,
    chat_settings: chat::Settings,
    length: ModelLength,
}

/// The compiled templates of a model.
struct ChatTemplates {
    plain: Option<ChatTemplate>,
    with_tools: Option<ChatTemplate>,
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
        let reference = HuggingFace::load(&tokenizer_path, &tokenizer_json)?;
        let config_path = files.dir.join("tokenizer_config.json");
        let config = files::read_object(&config_path, MAX_CONFIG_FILE_BYTES)?.unwrap_or_default();
        let model_config =
            files::read_object(&files.dir.join("config.json"), MAX_CONFIG_FILE_BYTES)?.unwrap_or_default();
        let family = match files.chat_renderer {
            ChatRenderer::Jinja => Family::Jinja,
            ChatRenderer::Detect => Family::detect(&files.dir, &model_config, &reference),
        };
        let rules = RenderingRules::of(files.engine_version);
        let chat = match family {
            Family::Jinja => ChatTemplates::load(files, &config_path, &config)?,
            other => Err(PromptError::not_renderable(other.describe())),
        };
        let harmony = (family == Family::Harmony).then(|| {
            let clock = Arc::clone(&files.clock);
            Harmony::new(files.engine_version, &reference, files.exclude_tools_when_none, clock)
        });
        let Chosen { encoder, choice } = choose(reference, &tokenizer_json, files.encoder)
            .map_err(|why| LoadError::UnusableTokenizer { path: tokenizer_path, why })?;
        Ok(ModelPrompt {
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
            },
        })
    }

    /// Everything up to the work of the tokenizer.
    pub fn prepare<'a>(&self, request: impl Into<PromptRequest<'a>>) -> Result<Prepared<'a>, PromptError> {
        match request.into() {
            PromptRequest::Completion(request) => {
                completion::prepare(&request, Truncation::resolve(request.truncate, self.length)?)
            }
            PromptRequest::Tokens(request) => {
                let ids = Truncation::resolve(request.truncate, self.length)?.cut(request.ids)?;
                Ok(Prepared::Ids(PromptTokens::whole(ids)))
            }
            PromptRequest::Chat(request) => {
                if let Some(harmony) = &self.harmony {
                    return harmony.as_ref().map_err(Clone::clone)?.chat(&request)?.prepare(&*self.encoder);
                }
                let truncation = Truncation::resolve(request.truncate, self.length)?;
                let special = request.add_special_tokens.map_or(SpecialTokens::Omit, SpecialTokens::from);
                Ok(Prepared::whole_text(self.render_chat(&request)?, special, truncation))
            }
        }
    }

    /// The work of the tokenizer.
    pub fn encode(&self, prepared: Prepared<'_>) -> Result<PromptTokens, PromptError> {
        match prepared {
            Prepared::Text(text) => text.encode(&*self.encoder),
            Prepared::Ids(tokens) => Ok(tokens),
        }
    }

    /// Both steps.
    pub fn tokens<'a>(&self, request: impl Into<PromptRequest<'a>>) -> Result<PromptTokens, PromptError> {
        self.encode(self.prepare(request)?)
    }

    /// The text that a chat becomes before it is encoded.
    pub fn render_chat(&self, request: &ChatRequest<'_>) -> Result<String, PromptError> {
        if let Some(harmony) = &self.harmony {
            return Ok(harmony.as_ref().map_err(Clone::clone)?.chat(request)?.to_text());
        }
        let templates = self.chat.as_ref().map_err(Clone::clone)?;
        chat::render(&self.chat_settings, |has_tools| templates.choose(has_tools), request)
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

    /// The content format that the model's template asks for; `None` where chats cannot be rendered.
    pub fn content_format(&self) -> Option<ContentFormat> {
        let templates = self.chat.as_ref().ok()?;
        Some(templates.choose(false)?.content_format())
    }
}

// === impl ChatTemplates ===

impl ChatTemplates {
    /// The inner error: the model has none.
    fn load(
        files: &ModelFiles,
        config_path: &Path,
        config: &Map<String, Json>,
    ) -> Result<Result<Self, PromptError>, LoadError> {
        let found = source::find(&files.dir, files.chat_template.as_deref(), config_path, config)?;
        let Some(sources) = found else {
            return Ok(Err(PromptError::not_renderable("the model has no chat template")));
        };
        let rules = RenderingRules::of(files.engine_version);
        let compile = |source: source::Source| {
            ChatTemplate::compile(&source.text, rules.content_detection, Arc::clone(&files.clock))
                .map_err(|error| LoadError::BadTemplate { path: source.path, why: error.to_string() })
        };
        Ok(Ok(ChatTemplates {
            plain: sources.plain.map(compile).transpose()?,
            with_tools: sources.with_tools.map(compile).transpose()?,
        }))
    }

    fn choose(&self, has_tools: bool) -> Option<&ChatTemplate> {
        let special = if has_tools { self.with_tools.as_ref() } else { None };
        special.or(self.plain.as_ref())
    }
}

#[cfg(test)]
mod tests;
