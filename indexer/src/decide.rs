//! Hot path: one request → one ranking, with a reservation on its winner.
//!
//! ```text
//! Question ─▶ tokens ─▶ keys ─▶ hits ─▶ candidates ─▶ ranked ─▶ reserved, speculated ─▶ Decision
//!             measure (pool)    └────────────── pick (one lock) ───────────────┘
//! ```
//!
//! In: a checked [`Question`]. Out: a [`Decision`], always: where the prompt cannot be read in time or at all, endpoints
//! are ranked by load only and the [`Reason`] is told. The driver of the read path; it owns no state but its counters.
//!
//! Measuring may take long and runs in a bounded pool beside the runtime. The pick takes microseconds and runs under
//! the mutex of the books, from the lookup to the blocks it speculates on, so that of a burst of equal requests each
//! sees what those before it reserved and will bring into a cache. When the time for the answer comes and the measuring
//! is not done, the pick is made without it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use warmpath_core::rank::{Candidate, Policy, Ranked};
use warmpath_kv::Index;
use warmpath_kv::index::Reader;

mod basis;
mod candidates;
mod keys;
mod measure;
mod memo_metrics;
pub mod metrics;
mod picking;
mod pool;
mod question;
mod ranking;
mod reason;
mod recognize;
mod round;
mod split;
mod telling;
#[cfg(test)]
mod tests;
mod turns;
mod verdict;
mod way;

pub use candidates::SAMPLE_BEATS;
pub use keys::PromptMemo;
pub use memo_metrics::MemoCollector;
pub use question::{Chat, Members, Prompt, Question};
pub use reason::Reason;
pub use verdict::Verdict;

use crate::books::{Books, DecisionIds};
use crate::clock::Clock;
use crate::config::{Config, Outliers, PolicyConfig};
use crate::engines::Directory;
use crate::fleet::{Endpoint, Snapshot, View};
use crate::ledger::DecisionId;
use crate::lengths::OutputLengths;
use crate::models::{LoadedModel, Registry, Target};
use crate::receipts::{Receipt, Receipts, Reserved};
use crate::volatile::VolatileHeads;
use candidates::{choosable, serving};
use measure::{Job, Measured, Measurer};
use metrics::DecideMetrics;
use pool::{Pool, PoolError};
use recognize::{Recognizable, Recognizer};
use round::Round;
use split::{Choice, Split};
use turns::Turns;
use way::Way;

/// What was decided.
#[derive(Clone, Debug)]
pub struct Decision {
    pub id: DecisionId,
    /// Best first, at most three, each of another endpoint. Empty: none is known.
    pub picks: Vec<Pick>,
    pub verdict: Verdict,
    /// Of the first prompt, as far as it is known; 0 where it was not tokenized.
    pub prompt_tokens: u32,
    /// Tokens of it that the best holder has.
    pub reachable_tokens: u32,
    pub policy: &'static str,
    /// None: no endpoint is known, or the ledger is full.
    pub reserved: Option<Reserved>,
}

/// What an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Decide,
    Explain,
}

/// One endpoint (and rank) of a ranking, with what made its cost.
#[derive(Clone, Debug)]
pub struct Pick {
    pub endpoint: Arc<str>,
    /// None: the endpoint has only one.
    pub rank: Option<u32>,
    pub candidate: Candidate,
    pub ranked: Ranked,
}

/// Decides.
#[derive(Debug)]
pub struct Decider {
    measurer: Arc<Measurer>,
    pool: Pool,
    recognizer: Recognizer,
    registry: Arc<Registry>,
    view: Arc<View>,
    engines: watch::Receiver<Arc<Directory>>,
    /// Beside the events: their lock is held for whole batches.
    cached: Reader,
    books: Arc<Mutex<Books>>,
    ids: DecisionIds,
    clock: Clock,
    settings: Settings,
    split: Split,
    turns: Turns,
    /// Decisions made.
    count: AtomicU64,
    receipts: Arc<Receipts>,
    lengths: Arc<OutputLengths>,
    metrics: DecideMetrics,
}

/// What of the configuration decisions depend on.
#[derive(Clone, Debug)]
struct Settings {
    policy: PolicyConfig,
    outliers: Outliers,
    reservation_ms: u64,
    speculative_ms: u64,
    beat_ms: u64,
}

/// What the decider shares with the rest of the program.
#[derive(Clone, Debug)]
pub struct Shared {
    pub registry: Arc<Registry>,
    pub view: Arc<View>,
    pub engines: watch::Receiver<Arc<Directory>>,
    pub index: Arc<RwLock<Index>>,
    pub books: Arc<Mutex<Books>>,
    pub volatile: Arc<VolatileHeads>,
    pub clock: Clock,
    pub memo: Arc<PromptMemo>,
    pub receipts: Arc<Receipts>,
    pub lengths: Arc<OutputLengths>,
}

// === impl Decider ===

impl Decider {
    pub fn new(config: &Config, shared: Shared, metrics: DecideMetrics) -> Self {
        let Shared { registry, view, engines, index, books, volatile, clock, memo, receipts, lengths } =
            shared;
        let ids = DecisionIds::new(books.lock().own());
        let cached = index.read().reader();
        let measurer = Measurer { memo, cached: cached.clone(), volatile, metrics: metrics.clone() };
        Self {
            measurer: Arc::new(measurer),
            recognizer: Recognizer::new(index, metrics.recognitions.clone()),
            pool: Pool::new(config.limits.tokenizer_threads, config.limits.tokenizer_queue),
            registry,
            view,
            engines,
            cached,
            books,
            ids,
            clock,
            settings: Settings {
                policy: config.policy.clone(),
                outliers: config.outliers,
                reservation_ms: config.leases.reservation_ms,
                speculative_ms: config.leases.speculative_ms,
                beat_ms: config.scrape.interval_ms,
            },
            split: Split::new(&config.policy),
            turns: Turns::default(),
            count: AtomicU64::new(0),
            receipts,
            lengths,
            metrics,
        }
    }

    /// Decides one request.
    pub async fn decide(&self, question: Question) -> Decision {
        let begun = Instant::now();
        let (decision, receipt) = self.answer(question, Purpose::Decide).await;
        // Before the answer leaves, so before anything can be reported about it.
        if let Some(receipt) = receipt {
            self.receipts.keep(decision.id, receipt);
        }
        self.count(&decision);
        self.metrics.whole.observe(begun.elapsed().as_secs_f64());
        decision
    }

    /// What would be decided, and why. Nothing is reserved, counted as a decision or kept.
    pub async fn explain(&self, question: Question) -> Option<Receipt> {
        self.answer(question, Purpose::Explain).await.1
    }

    async fn answer(&self, mut question: Question, purpose: Purpose) -> (Decision, Option<Receipt>) {
        let snapshot = self.view.current();
        let directory = self.engines.borrow().clone();
        let models = self.registry.current();
        let target = models.resolve(&question.model).or_else(|| {
            let adapter = directory.adapter(&question.model)?;
            Some(Target { model: adapter.model, adapter: Some(question.model.as_str().into()) })
        });
        let named = target.and_then(|target| Some((models.get(target.model)?.clone(), target)));
        let choice = question.policy.map(Choice::named);
        let choice = choice.unwrap_or_else(|| self.split.choose(question.group_key, rand::random()));
        let (sequences, estimated_bytes) = (question.sequences(), question.estimated_bytes());
        let output_limit = question.truncate.max_output_tokens.unwrap_or(0);
        let serving = match &named {
            Some((_, target)) => serving(&snapshot, target, &directory),
            None => snapshot.usable().collect(),
        };
        let keeper = question.previous_response.and_then(|key| self.keeper(key, &snapshot, &serving));
        let endpoints = choosable(&serving, keeper.as_deref(), self.clock.now());
        let model =
            named.as_ref().map(|(model, target)| LoadedModel { index: target.model, load: model.load });
        let named_here = named.as_ref().filter(|_| purpose == Purpose::Decide);
        let turn = named_here.and_then(|(model, target)| {
            self.recognizer.turn(&endpoints, model.block_hash, target.adapter.as_ref(), &directory)
        });
        let salt = turn.as_ref().and_then(|_| question.cache_salt.clone());
        let measured = match (question.previous_response, named) {
            // What the engine keeps of earlier turns is part of the prompt, and is not known here.
            (Some(_), _) if keeper.is_some() => Err(Reason::PreviousResponse),
            (Some(_), _) => Err(Reason::PreviousResponseUnknown),
            (None, Some((model, target))) => {
                let mut job = Job::take(&mut question, model, target.adapter);
                job.keeps_ids = turn.is_some();
                job.is_served = purpose == Purpose::Decide;
                self.measure(job, question.answer_by).await
            }
            (None, None) => Err(Reason::UnknownModel),
        };
        let mut basis = self.basis(&endpoints, measured);
        let ids = basis.measured.as_mut().and_then(|measured| measured.ids.take());
        let output_tokens =
            model.map_or(0, |model| self.lengths.expected(model.index, sequences, output_limit));
        let demand = basis.demand(estimated_bytes, output_tokens);
        let picking = Instant::now();
        let round = Round { choice, model, endpoints: &endpoints, basis: &basis, demand, sequences, keeper };
        let (decision, ranking) = match purpose {
            Purpose::Decide => self.pick(&round),
            Purpose::Explain => self.weigh(&round),
        };
        let is_wanted = purpose == Purpose::Explain || self.receipts.are_kept();
        let receipt = is_wanted.then(|| self.receipt(&round, &decision, &ranking, purpose));
        if purpose == Purpose::Decide {
            self.metrics.rank.observe(picking.elapsed().as_secs_f64());
        }
        if let (Some(turn), Some(ids), Some(measured)) = (turn, ids, basis.measured) {
            drop(turn.take(Recognizable { ids, keys: measured.keys, salt }));
        }
        (decision, receipt)
    }

    /// The policy named in a request, with the configured parameters; None: there is none of this name.
    pub fn policy(&self, name: &str) -> Option<Policy> {
        self.settings.policy.named(name)
    }

    /// The current endpoints.
    pub fn fleet(&self) -> Arc<Snapshot> {
        self.view.current()
    }

    /// Sequences reserved on an endpoint, all ranks together.
    pub fn active_sequences(&self, endpoint: &Endpoint) -> u64 {
        let books = self.books.lock();
        endpoint.ranks.iter().map(|rank| books.ledger().load(rank.place).sequences).sum()
    }

    async fn measure(
        &self,
        mut job: Job,
        answer_by: Option<tokio::time::Instant>,
    ) -> Result<Measured, Reason> {
        if let Prompt::Absent(reason) = job.prompt {
            return Err(reason);
        }
        let encoder = job.model.renderer.as_deref().map(|renderer| renderer.encoder().kind);
        job.give_up_at = answer_by;
        let lane = match Way::of(&job.prompt, encoder) {
            Way::AtOnce => return self.measurer.measure_here(job),
            Way::Pool(lane) => lane,
        };
        let (bytes, measurer) = (job.prompt.bytes(), self.measurer.clone());
        let measuring = self.pool.run(lane, bytes, answer_by, move || measurer.measure(job));
        measuring.await.unwrap_or_else(|error| {
            Err(match error {
                PoolError::Busy => Reason::Busy,
                PoolError::Late => Reason::Late,
                PoolError::Panicked => Reason::Failed,
            })
        })
    }
}
