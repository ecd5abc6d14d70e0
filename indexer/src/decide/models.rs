//! The configured models: their names, and what turns prompts into their tokens.

use std::collections::HashMap;
use std::sync::Arc;

use thiserror::Error;
use warmpath_prompt::{EncoderChoice, EncoderKind, LoadError, ModelFiles, ModelPrompt, ParseVersionError};

use crate::config::{ContentFormat, ModelConfig};
use crate::fleet::ModelIndex;

/// One model.
pub struct Model {
    /// The base model's name.
    pub name: String,
    /// None: configured without a tokenizer.
    pub renderer: Option<Arc<ModelPrompt>>,
}

/// All of them.
#[derive(Debug)]
pub struct Models {
    models: Vec<Model>,
    by_name: HashMap<String, ModelIndex>,
}

/// Why a model cannot be served.
#[derive(Debug, Error)]
enum ModelError {
    #[error("models[{index}].engine_version: {source}")]
    Version { index: usize, source: ParseVersionError },
    #[error("models[{index}].tokenizer_dir: {source}")]
    Files { index: usize, source: LoadError },
}

/// Every model that cannot be served.
#[derive(Debug, Error)]
#[error("cannot load the models:\n{}", lines(.0))]
pub struct ModelErrors(Vec<ModelError>);

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("name", &self.name).finish_non_exhaustive()
    }
}

// === impl Models ===

impl Models {
    /// Loads the files of every model; takes seconds. All failures are returned.
    pub fn load(configs: &[ModelConfig]) -> Result<Self, ModelErrors> {
        let (mut models, mut errors) = (Vec::new(), Vec::new());
        for (index, config) in configs.iter().enumerate() {
            match renderer(index, config) {
                Ok(renderer) => models.push(Model { name: config.name.clone(), renderer }),
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(ModelErrors(errors));
        }
        let names = configs.iter().enumerate().flat_map(|(index, config)| {
            let names = std::iter::once(&config.name).chain(&config.aliases);
            names.map(move |name| (name.clone(), ModelIndex(index)))
        });
        Ok(Self { models, by_name: names.collect() })
    }

    /// The model that a request means by `name`; an empty name means the only one.
    pub fn resolve(&self, name: &str) -> Option<ModelIndex> {
        match (name, self.models.as_slice()) {
            ("", [_]) => Some(ModelIndex(0)),
            _ => self.by_name.get(name).copied(),
        }
    }

    pub fn get(&self, index: ModelIndex) -> Option<&Model> {
        self.models.get(index.0)
    }
}

fn renderer(index: usize, config: &ModelConfig) -> Result<Option<Arc<ModelPrompt>>, ModelError> {
    let Some(dir) = &config.tokenizer_dir else { return Ok(None) };
    let engine_version = match &config.engine_version {
        Some(version) => version.parse().map_err(|source| ModelError::Version { index, source })?,
        None => Default::default(),
    };
    let content_format = match config.content_format {
        ContentFormat::Auto => None,
        ContentFormat::String => Some(warmpath_prompt::ContentFormat::Text),
        ContentFormat::OpenAi => Some(warmpath_prompt::ContentFormat::Parts),
    };
    let files = ModelFiles {
        chat_template: config.chat_template.clone(),
        content_format,
        engine_version,
        max_model_len: config.max_model_len,
        trust_request_template: config.trust_request_chat_template,
        default_template_kwargs: config.default_chat_template_kwargs.clone(),
        exclude_tools_when_none: config.exclude_tools_when_tool_choice_none,
        ..ModelFiles::in_dir(dir)
    };
    let renderer = ModelPrompt::load(&files).map_err(|source| ModelError::Files { index, source })?;
    log_encoder(&config.name, renderer.encoder());
    Ok(Some(Arc::new(renderer)))
}

fn log_encoder(model: &str, choice: &EncoderChoice) {
    for (encoder, why) in &choice.refused {
        tracing::info!(model, encoder = encoder.name(), why, "an encoder does not suit the model");
    }
    let encoder = choice.kind.name();
    match choice.kind {
        EncoderKind::Reference => {
            tracing::warn!(
                model,
                encoder,
                "model loaded, with the slow encoder only: long prompts will be late"
            );
        }
        EncoderKind::Fastokens | EncoderKind::Splintr => tracing::info!(model, encoder, "model loaded"),
    }
}

fn lines(errors: &[ModelError]) -> String {
    errors.iter().map(|error| format!("  {error}")).collect::<Vec<_>>().join("\n")
}
