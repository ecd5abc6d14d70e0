//! `warmpath check`: are our token ids those of the engines? A built-in set of prompts is rendered here and by each
//! engine, and compared.
//!
//! ```text
//! configuration ─▶ Target ─▶ Probe ─┬─ rendered here ──────────────┬▶ Verdict ─▶ Report, for people and as exit code
//!                                   └─ Engine: /tokenize, /render ─┘
//! ```
//!
//! In: the configuration's models and their endpoints. Out: a [`Report`] for each. Nothing of a running indexer is
//! used or changed, and the engines compute nothing but tokens.

use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;
use warmpath_prompt::{EngineVersion, ModelPrompt, PromptError, first_difference};

mod engine;
mod probes;
mod report;

pub use report::{Cell, FirstDifference, Report, Row, Summary, Window};

use crate::config::{Config, HostPort};
use crate::http::{AskError, EngineClient};
use crate::models::{ModelErrors, Models};
use engine::{Engine, Said};
use probes::Probe;

/// An idle engine tokenizes in milliseconds, a busy one may be late by a scheduler step or two.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Ids shown before and after a difference.
const SHOWN_AROUND: usize = 6;

/// What to check.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// In place of the configured endpoints.
    pub endpoint: Option<HostPort>,
    /// None: all.
    pub model: Option<String>,
}

/// Why nothing was checked.
#[derive(Debug, Error)]
pub enum CheckError {
    #[error("no model {0:?} in the configuration; give a model's name, not an alias or adapter")]
    UnknownModel(String),
    #[error("no model with a tokenizer_dir in the configuration; there is nothing to compare")]
    NothingToCompare,
    #[error("models: {0} has no endpoint in the configuration; give one with --endpoint")]
    NoEndpoint(String),
    #[error("endpoints: {name} cannot be looked up: {source}")]
    Lookup { name: String, source: std::io::Error },
    #[error(transparent)]
    Models(#[from] ModelErrors),
}

/// One model at one engine.
struct Target {
    /// Position in the configuration.
    model: usize,
    /// `host:port`.
    endpoint: String,
}

/// Checks what is selected: a report for each model and endpoint.
pub async fn run(config: &Config, selection: &Selection) -> Result<Vec<Report>, CheckError> {
    let client = EngineClient::new(ASK_TIMEOUT);
    let mut reports = Vec::new();
    for Target { model, endpoint } in targets(config, selection).await? {
        let Some(model) = config.models.get(model) else { continue };
        let engine = Engine { client: client.clone(), endpoint, model: model.name.clone() };
        let mut report = Report::new(&model.name, &engine.endpoint);
        match engine.version().await {
            Err(error) => report.unreachable = Some(error.to_string()),
            Ok(version) => {
                // As a running indexer does it: the configured release, or the engine's.
                let renderer = load(config, &model.name, version)?;
                report.engine_version = version;
                report.rendered_as = renderer.as_ref().map(|(_, version)| *version);
                if let Some((renderer, _)) = renderer {
                    compare_all(&renderer, &engine, &mut report).await;
                }
            }
        }
        reports.push(report);
    }
    Ok(reports)
}

async fn targets(config: &Config, selection: &Selection) -> Result<Vec<Target>, CheckError> {
    if let Some(name) = &selection.model
        && !config.models.iter().any(|model| model.name == *name)
    {
        return Err(CheckError::UnknownModel(name.clone()));
    }
    let is_selected = |name: &str| selection.model.as_ref().is_none_or(|selected| selected == name);
    let models = config.models.iter().enumerate();
    let models: Vec<_> =
        models.filter(|(_, model)| is_selected(&model.name) && model.tokenizer_dir.is_some()).collect();
    if models.is_empty() {
        return Err(CheckError::NothingToCompare);
    }
    let mut targets = Vec::new();
    for (number, model) in models {
        let endpoints = match &selection.endpoint {
            Some(endpoint) => vec![endpoint.to_string()],
            None => endpoints_of(config, &model.name).await?,
        };
        if endpoints.is_empty() {
            return Err(CheckError::NoEndpoint(model.name.clone()));
        }
        targets.extend(endpoints.into_iter().map(|endpoint| Target { model: number, endpoint }));
    }
    Ok(targets)
}

/// Every configured endpoint of a model; names are looked up.
pub async fn endpoints_of(config: &Config, model: &str) -> Result<Vec<String>, CheckError> {
    let fixed = config.endpoints.fixed.iter().filter(|endpoint| endpoint.model == model);
    let mut endpoints: Vec<SocketAddr> = fixed.map(|endpoint| endpoint.address).collect();
    for dns in config.endpoints.dns.iter().filter(|dns| dns.model == model) {
        let found = tokio::net::lookup_host((dns.name.as_str(), dns.port)).await;
        endpoints.extend(found.map_err(|source| CheckError::Lookup { name: dns.name.clone(), source })?);
    }
    endpoints.sort_unstable();
    endpoints.dedup();
    Ok(endpoints.iter().map(SocketAddr::to_string).collect())
}

/// The model as it is rendered for an engine of this release, and the release whose behaviour it follows.
fn load(
    config: &Config,
    name: &str,
    reported: Option<EngineVersion>,
) -> Result<Option<(std::sync::Arc<ModelPrompt>, EngineVersion)>, CheckError> {
    let configs: Vec<_> = config.models.iter().filter(|model| model.name == name).cloned().collect();
    let models = Models::named(&configs).succeeded_by(&configs, &|_| reported)?;
    let loaded = models.in_use().next().map(|(_, model)| model.clone());
    Ok(loaded.and_then(|model| Some((model.renderer.clone()?, model.release.version))))
}

async fn compare_all(renderer: &ModelPrompt, engine: &Engine, report: &mut Report) {
    for probe in probes::all() {
        let ours = probe.tokens(renderer);
        let tokenize = match probe.tokenize_body(&engine.model) {
            None => Cell::NotAsked,
            Some(body) => {
                let said = engine.ask("/tokenize", &body).await;
                judge(&ours, said, "/tokenize", &probe, engine, report).await
            }
        };
        let said = engine.ask(probe.render_path(), &probe.render_body(&engine.model)).await;
        let render = judge(&ours, said, "/render", &probe, engine, report).await;
        report.rows.push(Row { probe: probe.name, tokenize, render });
    }
}

/// Compares one answer. The first difference of the report is explained.
async fn judge(
    ours: &Result<Vec<u32>, PromptError>,
    said: Result<Said, AskError>,
    page: &'static str,
    probe: &Probe,
    engine: &Engine,
    report: &mut Report,
) -> Cell {
    match (ours, said) {
        (_, Err(error)) => Cell::Failed(error.to_string()),
        (_, Ok(Said::NotOffered)) => Cell::NotAsked,
        (Err(PromptError::Refused { .. }), Ok(Said::Refused(_))) => Cell::Equal,
        (_, Ok(Said::Refused(why))) => Cell::EngineRefused(why),
        (Err(PromptError::Refused { why }), Ok(Said::Tokens(_))) => Cell::OnlyWeRefuse(why.clone()),
        (Err(error), Ok(Said::Tokens(_))) => Cell::NotRendered(error.reason()),
        (Ok(ours), Ok(Said::Tokens(theirs))) => {
            let Some(difference) = first_difference(ours, &theirs) else { return Cell::Equal };
            if report.first_difference.is_none() {
                let begin = difference.position.saturating_sub(SHOWN_AROUND);
                let ours = window(engine, ours, begin).await;
                let theirs = window(engine, &theirs, begin).await;
                let agreeing = difference.position;
                report.first_difference =
                    Some(FirstDifference { probe: probe.name, page, agreeing, begin, ours, theirs });
            }
            Cell::Different
        }
    }
}

/// The ids around a difference with their text, which the engine decodes.
async fn window(engine: &Engine, ids: &[u32], begin: usize) -> Window {
    let shown: Vec<u32> = ids.iter().skip(begin).take(2 * SHOWN_AROUND + 1).copied().collect();
    let text = engine.text_of(&shown).await;
    Window { ids: shown, text, tokens: ids.len() }
}
