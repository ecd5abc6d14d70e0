//! The drift alarm: whether our tokens of a model's prompts are still those of its engines.
//!
//! In: what engines say of requests that were decided here. Out: per model a mark, a gauge, and one log line at each
//! change. Nothing is decided by it: it tells people that a template, a tokenizer or a release is not the engines'.
//!
//! Two signals, each with a window of its own over the last [`WINDOW`] requests:
//!
//! - *size*: `usage.prompt_tokens` is not the number of tokens that we made of the same, whole, only prompt. Nothing
//!   but rendering and tokenizing explains that, so few are enough.
//! - *cache*: the engine found more in its cache than it ever told of, although its stream is live and tells of one medium
//!   only (what it loads from another one counts as cached too). Tokens that differ
//!   but are as many (another date, say) show here alone. Events may be late, so it takes most of a window. (That it
//!   found less is usual: blocks are evicted between decision and arrival.)
//!
//! ```text
//!              at least `drifting_from` of the window differ
//!  Agreeing ───────────────────────────────────────────────────▶ Drifting
//!     ▲                                                              │
//!     └──────────────────────────────────────────────────────────────┘
//!              at most `agreeing_to` of the window differ
//! ```
//!
//! [`transition`] is the only place that says so.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde::Serialize;

mod metrics;
#[cfg(test)]
mod tests;

pub use metrics::{ComparedLabels, DriftMetrics};

use crate::fleet::ModelIndex;
use crate::models::{LoadId, LoadedModel};
use metrics::ModelLabels;

/// Requests that a window holds: enough that one odd kind of request does not fill it, few enough that a wrong template
/// shows within seconds of traffic.
pub const WINDOW: u32 = 32;

/// Whether a model's prompts are made as its engines make them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    #[default]
    Agreeing,
    Drifting,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    /// Tokens of the prompt.
    Size,
    /// Tokens of it in the engine's cache.
    Cache,
}

/// One comparison: what we made or expected, and what the engine says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Compared {
    pub ours: u32,
    pub theirs: u32,
}

/// When a signal's mark changes, in requests of its window.
#[derive(Clone, Copy, Debug)]
struct Thresholds {
    drifting_from: u32,
    agreeing_to: u32,
}

/// The last comparisons of one signal.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// A bit for each, the newest lowest; set where they differ. Those that have not been made yet count as equal.
    differing: u32,
    mark: Mark,
}

/// Both signals of one model.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    size: Window,
    cache: Window,
    /// The last one that differed.
    example: Option<Compared>,
}

/// What is known of one model, for people.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DriftState {
    pub mark: Mark,
    /// Of the last [`WINDOW`] comparisons each.
    pub differing_sizes: u32,
    pub differing_caches: u32,
    pub example: Option<Compared>,
}

/// Watches all models.
#[derive(Debug)]
pub struct DriftWatch {
    models: Mutex<Models>,
    metrics: DriftMetrics,
}

#[derive(Debug, Default)]
struct Models {
    /// Those of which something was compared.
    watched: HashMap<ModelIndex, Watched>,
    /// What each model is rendered by since it was loaded anew; `None`: not any more. Those that never were are not here.
    loads: HashMap<ModelIndex, Option<LoadId>>,
}

/// The only place that says when a mark changes.
fn transition(mark: Mark, differing: u32, thresholds: Thresholds) -> Mark {
    match mark {
        Mark::Agreeing if differing >= thresholds.drifting_from => Mark::Drifting,
        Mark::Drifting if differing <= thresholds.agreeing_to => Mark::Agreeing,
        mark => mark,
    }
}

// === impl Signal ===

impl Signal {
    fn thresholds(self) -> Thresholds {
        match self {
            // One request in eight: a kind of request that is rendered otherwise, not a single odd one.
            Self::Size => Thresholds { drifting_from: WINDOW / 8, agreeing_to: 0 },
            // Three quarters: more than late events can bring about.
            Self::Cache => Thresholds { drifting_from: WINDOW * 3 / 4, agreeing_to: WINDOW / 4 },
        }
    }

    /// None: says nothing. Otherwise whether it speaks for drift.
    fn reads(self, compared: Compared) -> Option<bool> {
        let Compared { ours, theirs } = compared;
        match self {
            Self::Size => Some(ours != theirs),
            Self::Cache => (ours > 0 || theirs > 0).then_some(theirs > ours),
        }
    }
}

// === impl Window ===

impl Window {
    /// Takes one comparison in; whether the mark changed.
    fn take(&mut self, differs: bool, thresholds: Thresholds) -> bool {
        self.differing = self.differing << 1 | u32::from(differs);
        let before = self.mark;
        self.mark = transition(before, self.differing.count_ones(), thresholds);
        before != self.mark
    }
}

// === impl Watched ===

impl Watched {
    fn mark(&self) -> Mark {
        match (self.size.mark, self.cache.mark) {
            (Mark::Agreeing, Mark::Agreeing) => Mark::Agreeing,
            _ => Mark::Drifting,
        }
    }
}

// === impl DriftWatch ===

impl DriftWatch {
    pub fn new(metrics: DriftMetrics) -> Self {
        Self { models: Mutex::default(), metrics }
    }

    pub fn metrics(&self) -> &DriftMetrics {
        &self.metrics
    }

    /// Takes one comparison in, of a request that `endpoint` answered. `model` is the name of the model. What a renderer
    /// made that has been replaced meanwhile says nothing any more.
    pub fn compare(
        &self,
        loaded: LoadedModel,
        model: &str,
        endpoint: &str,
        signal: Signal,
        compared: Compared,
    ) {
        if let Signal::Size = signal {
            self.metrics.count(model, endpoint, compared);
        }
        let Some(differs) = signal.reads(compared) else { return };
        let mut models = self.models.lock();
        if models.loads.get(&loaded.index).is_some_and(|load| *load != Some(loaded.load)) {
            return;
        }
        let watched = models.watched.entry(loaded.index).or_default();
        if differs {
            watched.example = Some(compared);
        }
        let window = match signal {
            Signal::Size => &mut watched.size,
            Signal::Cache => &mut watched.cache,
        };
        let changed = window.take(differs, signal.thresholds());
        let mark = window.mark;
        let drift = i64::from(watched.mark() == Mark::Drifting);
        // Under the lock, so that the gauge says what came last.
        self.metrics.drift.get_or_create(&ModelLabels { model: model.to_owned() }).set(drift);
        drop(models);
        if changed {
            say(model, endpoint, signal, mark, compared);
        }
    }

    /// A model is rendered by this from now on, or (`None`) not any more: what was seen before says nothing, and neither
    /// does what comes later of requests that are on their way.
    pub fn begin(&self, index: ModelIndex, model: &str, load: Option<LoadId>) {
        let mut models = self.models.lock();
        models.loads.insert(index, load);
        models.watched.remove(&index);
        self.metrics.drift.remove(&ModelLabels { model: model.to_owned() });
    }

    /// None: nothing has been compared yet.
    pub fn state(&self, index: ModelIndex) -> Option<DriftState> {
        let watched = *self.models.lock().watched.get(&index)?;
        Some(DriftState {
            mark: watched.mark(),
            differing_sizes: watched.size.differing.count_ones(),
            differing_caches: watched.cache.differing.count_ones(),
            example: watched.example,
        })
    }
}

fn say(model: &str, endpoint: &str, signal: Signal, mark: Mark, compared: Compared) {
    let Compared { ours, theirs } = compared;
    match (mark, signal) {
        (Mark::Agreeing, _) => {
            tracing::info!(model, endpoint, ?signal, "prompts are made as the engines make them again");
        }
        (Mark::Drifting, Signal::Size) => tracing::warn!(
            model,
            endpoint,
            our_tokens = ours,
            engine_tokens = theirs,
            "prompts have other tokens than the engine's, so its cache is not predicted; check chat_template (the \
             engine's --chat-template), engine_version, content_format and the files in tokenizer_dir, and run \
             `warmpath check`"
        ),
        (Mark::Drifting, Signal::Cache) => tracing::warn!(
            model,
            endpoint,
            predicted_tokens = ours,
            cached_tokens = theirs,
            "the engine finds more in its cache than its events tell of, so prompts may have other tokens than the \
             engine's; check chat_template, engine_version, the files in tokenizer_dir and this machine's date and time \
             zone, and run `warmpath check`"
        ),
    }
}
