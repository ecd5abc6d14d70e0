//! A model's configuration and files → a [`Model`] that can be used.

use std::sync::Arc;

use thiserror::Error;
use warmpath_kv::native_hash::{NativeAlgorithm, NativeHasher, NativeKeyForm, SEED_DEFAULT};
use warmpath_prompt::{
    Cuts, EncoderChoice, EncoderKind, EngineVersion, LoadError, ModelFiles, ModelPrompt, ParseVersionError,
};

use super::{LoadId, Model, NotHashed, Release, ToldBy};
use crate::config::{BlockHash, ContentFormat, ModelConfig};

/// Why a model cannot be served.
#[derive(Debug, Error)]
pub(super) enum ModelError {
    #[error("models[{index}].engine_version: {source}")]
    Version { index: usize, source: ParseVersionError },
    /// `key` is the one that names the file at fault.
    #[error("models[{index}].{key}: {source}")]
    Files { index: usize, key: &'static str, source: LoadError },
}

/// Earlier releases take random bytes where no seed is set.
const SEED_FIXED_SINCE: EngineVersion = EngineVersion::new(0, 29);
/// From then on each key of a block says what it is.
const KEYS_TAGGED_SINCE: EngineVersion = EngineVersion::new(0, 31);

/// Every model that cannot be served.
#[derive(Debug, Error)]
#[error("cannot load the models:\n{}", lines(.0))]
pub struct ModelErrors(pub(super) Vec<ModelError>);

/// A model of this name whose files have not been read.
pub(super) fn unloaded(name: &str) -> Model {
    let release = Release { version: EngineVersion::default(), told_by: ToldBy::Nobody };
    let load = LoadId::fresh();
    Model {
        name: name.into(),
        renderer: None,
        release,
        load,
        block_hash: Err(NotHashed::Algorithm),
        is_loaded: false,
        is_retired: false,
    }
}

/// Loads one model, `index` being its position in the configuration. `reported` is the release that its engines
/// report, which counts where none is configured.
pub(super) fn model(
    index: usize,
    config: &ModelConfig,
    reported: Option<EngineVersion>,
) -> Result<Model, ModelError> {
    let release = match (&config.engine_version, reported) {
        (Some(version), _) => Release {
            version: version.parse().map_err(|source| ModelError::Version { index, source })?,
            told_by: ToldBy::Configuration,
        },
        (None, Some(version)) => Release { version, told_by: ToldBy::Engines },
        (None, None) => Release { version: EngineVersion::default(), told_by: ToldBy::Nobody },
    };
    let renderer = renderer(index, config, release.version)?;
    let block_hash = block_hash(&config.block_hash, release.version);
    Ok(Model { renderer, release, block_hash, is_loaded: true, ..unloaded(&config.name) })
}

/// How engines of this release hash their blocks.
fn block_hash(config: &BlockHash, version: EngineVersion) -> Result<NativeHasher, NotHashed> {
    let algorithm = NativeAlgorithm::by_name(config.algorithm).ok_or(NotHashed::Algorithm)?;
    let is_fixed = version >= SEED_FIXED_SINCE && algorithm.resists_collisions();
    let seed = config.seed.as_deref().or(is_fixed.then_some(SEED_DEFAULT)).ok_or(NotHashed::Seed)?;
    let form = if version >= KEYS_TAGGED_SINCE { NativeKeyForm::Tagged } else { NativeKeyForm::Plain };
    Ok(NativeHasher::new(algorithm, seed, form))
}

fn renderer(
    index: usize,
    config: &ModelConfig,
    engine_version: EngineVersion,
) -> Result<Option<Arc<ModelPrompt>>, ModelError> {
    let Some(dir) = &config.tokenizer_dir else { return Ok(None) };
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
        rule_overrides: config.rendering.clone(),
        ..ModelFiles::in_dir(dir)
    };
    let renderer = ModelPrompt::load(&files).map_err(|source| ModelError::Files {
        index,
        key: key_of(&source, config),
        source,
    })?;
    log_encoder(&config.name, renderer.encoder());
    log_cuts(&config.name, renderer.cuts());
    Ok(Some(Arc::new(renderer)))
}

/// The key of a model's configuration that is to be looked at.
fn key_of(error: &LoadError, config: &ModelConfig) -> &'static str {
    match error.path() {
        None => "rendering",
        path if path == config.chat_template.as_deref() => "chat_template",
        Some(_) => "tokenizer_dir",
    }
}

/// Where the model's prompts can be cut to be remembered, and why not at more places.
fn log_cuts(model: &str, cuts: &Cuts) {
    for obstacle in &cuts.obstacles {
        tracing::info!(model, why = %obstacle, "a kind of place at which texts are not cut");
    }
    tracing::info!(model, cut = %cuts.rule, "texts are remembered in parts");
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
