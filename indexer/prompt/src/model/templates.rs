//! The chat templates of a model.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::ModelFiles;
use super::source::{self, Source, Sources};
use crate::error::{LoadError, PromptError};
use crate::template::{ChatTemplate, takes_later_system};
use crate::version::RenderingRules;

/// The compiled templates of a model.
pub(super) struct ChatTemplates {
    plain: Option<ChatTemplate>,
    with_tools: Option<ChatTemplate>,
    /// Each of them takes a system message that is not the first one.
    pub take_later_system: bool,
}

/// Whether all templates in the model's files take a system message that is not the first one. False where there are none,
/// or none that can be read.
pub(super) fn take_later_system(files: &ModelFiles, config_path: &Path, config: &Map<String, Json>) -> bool {
    let found = source::find(&files.dir, files.chat_template.as_deref(), config_path, config);
    found.ok().flatten().is_some_and(|sources| all_take_later_system(&sources))
}

fn all_take_later_system(sources: &Sources) -> bool {
    [&sources.plain, &sources.with_tools].into_iter().flatten().all(|source| takes_later_system(&source.text))
}

// === impl ChatTemplates ===

impl ChatTemplates {
    /// The inner error: the model has none.
    pub(super) fn load(
        files: &ModelFiles,
        rules: RenderingRules,
        config_path: &Path,
        config: &Map<String, Json>,
    ) -> Result<Result<Self, PromptError>, LoadError> {
        let found = source::find(&files.dir, files.chat_template.as_deref(), config_path, config)?;
        let Some(sources) = found else {
            return Ok(Err(PromptError::not_renderable("the model has no chat template")));
        };
        let compile = |source: Source| {
            ChatTemplate::compile(&source.text, rules.content_detection, Arc::clone(&files.clock))
                .map_err(|error| LoadError::BadTemplate { path: source.path, why: error.to_string() })
        };
        let take_later_system = all_take_later_system(&sources);
        Ok(Ok(ChatTemplates {
            take_later_system,
            plain: sources.plain.map(compile).transpose()?,
            with_tools: sources.with_tools.map(compile).transpose()?,
        }))
    }

    pub(super) fn choose(&self, has_tools: bool) -> Option<&ChatTemplate> {
        let special = if has_tools { self.with_tools.as_ref() } else { None };
        special.or(self.plain.as_ref())
    }
}
