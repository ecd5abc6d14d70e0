//! The model registry: which model, and which of its adapters, a name in a request means, and what turns that model's
//! prompts into tokens.
//!
//! In: the configuration's `models`, and what engines say of their release. Out: [`Models`], one immutable state that
//! readers take whole, so that a request is decided with what it began with. [`Reloader`] is the one who replaces it,
//! after everything new has been loaded; whatever fails leaves the old one in use.
//!
//! A model keeps its [`ModelIndex`] for the life of the program, as endpoints refer to it: one that a reload removes is
//! retired, and found again by its name if it comes back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use warmpath_kv::native_hash::NativeHasher;
use warmpath_prompt::{EngineVersion, ModelPrompt};

mod load;
mod metrics;
pub mod reload;
#[cfg(test)]
mod tests;

pub use load::ModelErrors;
pub use metrics::ModelMetrics;
pub use reload::{LastReload, ReloadError, ReloadOrder, Reloaded, Reloader};

use crate::config::ModelConfig;
use crate::fleet::ModelIndex;

/// One model.
#[derive(Clone)]
pub struct Model {
    /// The base model's name: the namespace of its block keys.
    pub name: Arc<str>,
    /// None: configured without a tokenizer.
    pub renderer: Option<Arc<ModelPrompt>>,
    /// Whose behaviour the renderer follows.
    pub release: Release,
    /// Which reading of its files the renderer is.
    pub load: LoadId,
    /// How its engines hash their blocks, or why that is not known.
    pub block_hash: Result<NativeHasher, NotHashed>,
    /// Its files were read, if it has any.
    pub is_loaded: bool,
    /// Not in the configuration any more.
    is_retired: bool,
}

/// Why an engine's own hashes of a prompt cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHashed {
    /// Another algorithm than those known, or the model is not loaded.
    Algorithm,
    /// It is random by default, or in this release, and `block_hash.seed` does not say what it is set to.
    Seed,
}

/// Names one reading of a model's files in the life of the program: what one of them made says nothing of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadId(u64);

/// What rendered a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedModel {
    pub index: ModelIndex,
    pub load: LoadId,
}

/// A release of the engine, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub version: EngineVersion,
    pub told_by: ToldBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToldBy {
    Configuration,
    Engines,
    /// The newest known is assumed.
    Nobody,
}

/// All of them, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Models {
    /// By their index, retired ones too.
    models: Vec<Arc<Model>>,
    by_name: HashMap<String, Target>,
}

/// What a name in a request means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub model: ModelIndex,
    /// None: the base model itself.
    pub adapter: Option<Arc<str>>,
}

/// The models in use, shared with readers.
#[derive(Debug)]
pub struct Registry {
    current: RwLock<Arc<Models>>,
    last_reload: Mutex<Option<LastReload>>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("name", &self.name)
            .field("release", &self.release)
            .finish_non_exhaustive()
    }
}

// === impl LoadId ===

impl LoadId {
    /// One that there was not before.
    pub fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

// === impl Models ===

impl Models {
    /// The names alone, each model without a renderer.
    pub fn named(configs: &[ModelConfig]) -> Self {
        let models = configs.iter().map(|config| Arc::new(load::unloaded(&config.name)));
        Self::default().with_models(models.collect(), configs)
    }

    /// Loads the files of every model; takes seconds. All failures are returned.
    pub fn load(configs: &[ModelConfig]) -> Result<Self, ModelErrors> {
        Self::default().succeeded_by(configs, &|_| None)
    }

    /// What comes after these models when `configs` are the models: every file is read anew. `reported` tells the
    /// release that a model's engines report.
    pub fn succeeded_by(
        &self,
        configs: &[ModelConfig],
        reported: &dyn Fn(ModelIndex) -> Option<EngineVersion>,
    ) -> Result<Self, ModelErrors> {
        let mut models: Vec<Arc<Model>> = self.models.iter().map(|model| Arc::new(model.retired())).collect();
        let mut errors = Vec::new();
        for (position, config) in configs.iter().enumerate() {
            let known = self.index_of(&config.name);
            match load::model(position, config, known.and_then(reported)) {
                Err(error) => errors.push(error),
                Ok(model) => match known.and_then(|index| models.get_mut(index.0)) {
                    Some(slot) => *slot = Arc::new(model),
                    None => models.push(Arc::new(model)),
                },
            }
        }
        if errors.is_empty() { Ok(self.with_models(models, configs)) } else { Err(ModelErrors(errors)) }
    }

    /// The same models, but for this one.
    fn with(&self, index: ModelIndex, model: Model) -> Self {
        let mut next = self.clone();
        if let Some(slot) = next.models.get_mut(index.0) {
            *slot = Arc::new(model);
        }
        next
    }

    fn with_models(&self, models: Vec<Arc<Model>>, configs: &[ModelConfig]) -> Self {
        let mut next = Self { models, by_name: HashMap::new() };
        for config in configs {
            let Some(model) = next.index_of(&config.name) else { continue };
            let base = std::iter::once(&config.name).chain(&config.aliases).map(|name| (name, None));
            let adapters = config.adapters.iter().map(|name| (name, Some(Arc::from(name.as_str()))));
            for (name, adapter) in base.chain(adapters) {
                next.by_name.insert(name.clone(), Target { model, adapter });
            }
        }
        next
    }

    /// What a request means by `name`, as far as the configuration tells; an empty name means the only model.
    pub fn resolve(&self, name: &str) -> Option<Target> {
        if name.is_empty() {
            let mut in_use = self.in_use();
            let (model, _) = in_use.next()?;
            return in_use.next().is_none().then_some(Target { model, adapter: None });
        }
        self.by_name.get(name).cloned()
    }

    /// None: there is none, or it is retired.
    pub fn get(&self, index: ModelIndex) -> Option<&Arc<Model>> {
        self.models.get(index.0).filter(|model| !model.is_retired)
    }

    /// The name of a model, retired or not.
    pub fn name(&self, index: ModelIndex) -> Arc<str> {
        self.models.get(index.0).map_or_else(|| Arc::from(""), |model| model.name.clone())
    }

    /// Every model that is not retired.
    pub fn in_use(&self) -> impl Iterator<Item = (ModelIndex, &Arc<Model>)> {
        let numbered = self.models.iter().enumerate().map(|(index, model)| (ModelIndex(index), model));
        numbered.filter(|(_, model)| !model.is_retired)
    }

    /// Every model there ever was: its name, and what it is rendered by; `None` where it is retired.
    pub fn loads(&self) -> impl Iterator<Item = (ModelIndex, &str, Option<LoadId>)> {
        let numbered = self.models.iter().enumerate();
        numbered.map(|(index, model)| {
            (ModelIndex(index), &*model.name, (!model.is_retired).then_some(model.load))
        })
    }

    /// Every name that a request can use for a model or an adapter of it, sorted.
    pub fn names_of(&self, index: ModelIndex) -> Vec<(&str, &Target)> {
        let names = self.by_name.iter().filter(|(_, target)| target.model == index);
        let mut names: Vec<_> = names.map(|(name, target)| (name.as_str(), target)).collect();
        names.sort_unstable_by_key(|(name, _)| *name);
        names
    }

    fn index_of(&self, name: &str) -> Option<ModelIndex> {
        self.models.iter().position(|model| *model.name == *name).map(ModelIndex)
    }
}

// === impl Model ===

impl Model {
    fn retired(&self) -> Self {
        Self { renderer: None, is_retired: true, ..self.clone() }
    }
}

// === impl Registry ===

impl Registry {
    /// A registry of names; [`Models`] that are loaded come later.
    pub fn of_names(configs: &[ModelConfig]) -> Self {
        Self { current: RwLock::new(Arc::new(Models::named(configs))), last_reload: Mutex::new(None) }
    }

    pub fn current(&self) -> Arc<Models> {
        self.current.read().clone()
    }

    /// The name of a model, retired or not.
    pub fn name(&self, index: ModelIndex) -> Arc<str> {
        self.current.read().name(index)
    }

    pub fn last_reload(&self) -> Option<LastReload> {
        self.last_reload.lock().clone()
    }

    /// Puts other models in use. For the start and for [`Reloader`], which runs after it.
    pub fn install(&self, models: Models) {
        *self.current.write() = Arc::new(models);
    }
}
