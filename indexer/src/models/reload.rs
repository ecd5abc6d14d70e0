//! Replaces the models in use while the program runs: when asked to, and when engines report another release.
//!
//! In: SIGHUP, [`ReloadOrder`]s of the admin listener, and the directory of engines. Out: new [`Models`] in the
//! registry, loaded beside the runtime first. Of the configuration file only `models` can change; what else differs is
//! said and waits for a restart.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use thiserror::Error;
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;
use warmpath_kv::Millis;
use warmpath_prompt::EngineVersion;

use super::metrics::{ModelMetrics, ReloadLabels};
use super::{Model, ModelErrors, Models, Registry, Release, Target, ToldBy, load};
use crate::clock::Clock;
use crate::config::{Config, ConfigError, ModelConfig};
use crate::drift::DriftWatch;
use crate::engines::Directory;
use crate::fleet::{ModelIndex, View};

/// Orders that may wait: a reload takes seconds, and asking again meanwhile brings nothing.
pub const ORDERS_MAX: usize = 4;

/// Asks for a reload.
#[derive(Debug)]
pub struct ReloadOrder {
    pub reply: oneshot::Sender<Result<Reloaded, ReloadError>>,
}

/// What a reload changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// Names of all models in use now.
    pub models: Vec<String>,
    pub added: Vec<String>,
    pub removed: Vec<String>,
    /// Sections of the file that differ from what is in effect, and need a restart.
    pub needs_restart: Vec<&'static str>,
}

/// Why everything stays as it was.
#[derive(Debug, Error)]
pub enum ReloadError {
    #[error("the configuration did not come from a file")]
    NoFile,
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Models(#[from] ModelErrors),
    #[error("loading broke down: {0}")]
    Broken(#[from] JoinError),
}

/// How the last reload ended, for people.
#[derive(Clone, Debug, Serialize)]
pub struct LastReload {
    #[serde(skip)]
    pub at: Millis,
    pub applied: Option<Reloaded>,
    pub error: Option<String>,
}

/// Owns what the registry holds.
pub struct Reloader {
    /// None: the configuration did not come from a file.
    pub file: Option<PathBuf>,
    /// In effect.
    pub config: Config,
    pub registry: Arc<Registry>,
    pub view: Arc<View>,
    pub engines: watch::Receiver<Arc<Directory>>,
    /// Starts anew for a model that is loaded anew.
    pub drift: Arc<DriftWatch>,
    pub clock: Clock,
    pub metrics: ModelMetrics,
    /// What was last logged of the engines' releases, per model.
    pub said: HashMap<ModelIndex, Vec<EngineVersion>>,
}

// === impl Reloader ===

impl Reloader {
    /// Runs until `stop`.
    pub async fn run(
        mut self,
        mut orders: mpsc::Receiver<ReloadOrder>,
        mut hangups: Signal,
        stop: CancellationToken,
    ) {
        // The sender of the directory ends with the drain, and a channel without a sender is always ready.
        let mut are_engines_asked = true;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(order) = orders.recv() => {
                    let result = self.reload().await;
                    if order.reply.send(result).is_err() {
                        tracing::debug!("who asked for a reload has gone");
                    }
                }
                Some(()) = hangups.recv() => {
                    // Both ends are logged and counted.
                    let _logged = self.reload().await;
                }
                changed = self.engines.changed(), if are_engines_asked => {
                    are_engines_asked = changed.is_ok();
                    self.follow_releases().await;
                }
            }
        }
    }

    async fn reload(&mut self) -> Result<Reloaded, ReloadError> {
        let result = self.replace().await;
        let (label, applied, error) = match &result {
            Ok(reloaded) => {
                let Reloaded { models, added, removed, needs_restart } = reloaded;
                tracing::info!(models = models.len(), ?added, ?removed, "models reloaded");
                if !needs_restart.is_empty() {
                    tracing::warn!(sections = ?needs_restart, "the configuration differs in more than models; restart to apply it");
                }
                ("applied", Some(reloaded.clone()), None)
            }
            Err(error) => {
                tracing::error!(%error, "reload refused; the models stay as they were");
                ("refused", None, Some(error.to_string()))
            }
        };
        self.metrics.reloads.get_or_create(&ReloadLabels { result: label }).inc();
        *self.registry.last_reload.lock() = Some(LastReload { at: self.clock.now(), applied, error });
        result
    }

    async fn replace(&mut self) -> Result<Reloaded, ReloadError> {
        let file = self.file.clone().ok_or(ReloadError::NoFile)?;
        let (before, reported) = (self.registry.current(), self.reported());
        let (config, models) = spawn_blocking(move || -> Result<(Config, Models), ReloadError> {
            let config = Config::load(&file)?;
            let models = before.succeeded_by(&config.models, &|model| reported.get(&model).copied())?;
            Ok((config, models))
        })
        .await??;
        let names = |models: &[ModelConfig]| -> Vec<String> {
            models.iter().map(|model| model.name.clone()).collect()
        };
        let (old, new) = (names(&self.config.models), names(&config.models));
        let reloaded = Reloaded {
            added: new.iter().filter(|name| !old.contains(name)).cloned().collect(),
            removed: old.iter().filter(|name| !new.contains(name)).cloned().collect(),
            models: new,
            needs_restart: other_sections(&self.config, &config),
        };
        self.registry.install(models);
        for (index, name, load) in self.registry.current().loads() {
            self.drift.begin(index, name, load);
        }
        // The rest stays what is in effect, so that the next reload says again what differs.
        self.config.models = config.models;
        Ok(reloaded)
    }

    /// The release to follow of each model whose engines report one.
    fn reported(&self) -> HashMap<ModelIndex, EngineVersion> {
        let (directory, fleet) = (self.engines.borrow().clone(), self.view.current());
        let models = self.registry.current();
        let versions =
            models.loads().map(|(index, _, _)| (index, most_common(&directory.versions(index, &fleet))));
        versions.filter_map(|(index, version)| Some((index, version?))).collect()
    }

    /// Loads models anew whose engines report another release than the one they are rendered for.
    async fn follow_releases(&mut self) {
        let directory = self.engines.borrow_and_update().clone();
        let (fleet, models) = (self.view.current(), self.registry.current());
        for (position, config) in self.config.models.clone().into_iter().enumerate() {
            let Some(Target { model: index, .. }) = models.resolve(&config.name) else { continue };
            let Some(model) = models.get(index).cloned() else { continue };
            let versions = directory.versions(index, &fleet);
            self.say(index, &model, &versions);
            let Some(version) = most_common(&versions) else { continue };
            if config.engine_version.is_some() || model.renderer.is_none() {
                continue;
            }
            let release = Release { version, told_by: ToldBy::Engines };
            if model.release == release {
                continue;
            }
            if model.release.version == version {
                self.put(index, Model { release, ..(*model).clone() });
                continue;
            }
            let loading = spawn_blocking(move || load::model(position, &config, Some(version)));
            match loading.await {
                Ok(Ok(loaded)) => {
                    tracing::info!(model = %loaded.name, engine_version = %version, "rendered as its engines' release does it");
                    let (name, load) = (loaded.name.clone(), loaded.load);
                    self.put(index, loaded);
                    self.drift.begin(index, &name, Some(load));
                }
                Ok(Err(error)) => {
                    tracing::error!(%error, "a model cannot be loaded anew; it stays as it was")
                }
                Err(error) => tracing::error!(%error, "loading a model broke down; it stays as it was"),
            }
        }
    }

    fn put(&self, index: ModelIndex, model: Model) {
        self.registry.install(self.registry.current().with(index, model));
    }

    /// Says once what is odd about the releases of a model's engines.
    fn say(&mut self, index: ModelIndex, model: &Model, versions: &[(EngineVersion, usize)]) {
        let list: Vec<EngineVersion> = versions.iter().map(|(version, _)| *version).collect();
        if self.said.get(&index) == Some(&list) {
            return;
        }
        let shown = list.iter().map(EngineVersion::to_string).collect::<Vec<_>>().join(", ");
        let configured = model.release.told_by == ToldBy::Configuration;
        if list.len() > 1 {
            tracing::warn!(model = %model.name, engine_versions = shown, "engines of different releases may make different tokens of one prompt");
        } else if configured && !list.is_empty() && !list.contains(&model.release.version) {
            tracing::warn!(
                model = %model.name,
                engine_version = %model.release.version,
                reported = shown,
                "the configured engine_version is not what the engines report; correct it or leave it out"
            );
        }
        self.said.insert(index, list);
    }
}

/// The release of most engines; the newest of those that are equally common.
fn most_common(versions: &[(EngineVersion, usize)]) -> Option<EngineVersion> {
    versions.iter().max_by_key(|(version, count)| (*count, *version)).map(|(version, _)| *version)
}

/// Sections apart from `models` in which two configurations differ.
fn other_sections(a: &Config, b: &Config) -> Vec<&'static str> {
    // A new section stops the build here, and belongs into the list.
    let Config {
        listen,
        policy,
        models: _,
        endpoints,
        scrape,
        outliers,
        receipts,
        leases,
        peers,
        mirror,
        limits,
        lifecycle,
        log,
    } = a;
    let sections = [
        ("listen", *listen != b.listen),
        ("policy", *policy != b.policy),
        ("endpoints", *endpoints != b.endpoints),
        ("scrape", *scrape != b.scrape),
        ("outliers", *outliers != b.outliers),
        ("receipts", *receipts != b.receipts),
        ("leases", *leases != b.leases),
        ("peers", *peers != b.peers),
        ("mirror", *mirror != b.mirror),
        ("limits", *limits != b.limits),
        ("lifecycle", *lifecycle != b.lifecycle),
        ("log", *log != b.log),
    ];
    sections.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reload_cannot_apply_is_named() {
        let before = Config::parse("{}").unwrap();
        for (section, yaml) in [
            ("listen", "listen: { admin: \"127.0.0.1:7\" }"),
            ("policy", "policy: { name: sticky }"),
            ("endpoints", "models: [{ name: m }]\nendpoints: { static: [{ address: \"10.0.0.1:1\" }] }"),
            ("scrape", "scrape: { timeout_ms: 77 }"),
            ("outliers", "outliers: { failures: 0 }"),
            ("receipts", "receipts: { keep: 0 }"),
            ("leases", "leases: { speculative_ms: 77 }"),
            ("peers", "peers: [\"h:1\"]"),
            ("mirror", "mirror: { redis: \"h:1\" }"),
            ("limits", "limits: { reservations: 77 }"),
            ("lifecycle", "lifecycle: { drain_ms: 77 }"),
            ("log", "log: { level: debug }"),
        ] {
            assert_eq!(other_sections(&before, &Config::parse(yaml).unwrap()), [section]);
        }
        assert!(other_sections(&before, &Config::parse("models: [{ name: m }]").unwrap()).is_empty());
    }
}
