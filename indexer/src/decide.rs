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
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use warmpath_core::limits::CANDIDATES_MAX;
use warmpath_core::rank::{Candidate, Demand, Policy, Ranked, rank};
use warmpath_kv::index::StreamStats;
use warmpath_kv::{Hits, Index, PromptKeys, Trust};

mod candidates;
mod measure;
pub mod metrics;
mod models;
mod pool;
mod question;
mod reason;
#[cfg(test)]
mod tests;

pub use models::{ModelErrors, Models};
pub use question::{Chat, Prompt, Question};
pub use reason::Reason;

use crate::books::{Books, DecisionIds, Placed};
use crate::clock::Clock;
use crate::config::{Config, PolicyConfig};
use crate::fleet::{Endpoint, ModelIndex, Snapshot, View};
use crate::ledger::{DecisionId, Forecast};
use candidates::{Seat, gather, serving};
use measure::{BYTES_PER_TOKEN, Job, Measured, Measurer};
use metrics::{DecideMetrics, DecisionLabels};
use pool::{Lane, Pool, PoolError};

/// Prompts of up to this many token ids are looked up at once, without a hop to another thread: 32,768 tokens are 2,048
/// blocks of 16, about 40 µs of hashing.
const INLINE_TOKENS_MAX: usize = 32_768;
/// Texts of more than this many bytes are tokenized in the long lane. The slowest kind of text, one endless word, takes
/// some hundred milliseconds at this size; prose takes the 50 ms that an answer usually has.
const QUICK_TEXT_BYTES_MAX: usize = 256 << 10;
/// Costs within one block are equal; this is a block where none has been learnt.
const TIE_TOKENS_DEFAULT: u32 = 16;

/// What was decided.
#[derive(Clone, Debug)]
pub struct Decision {
    pub id: DecisionId,
    /// Best first, at most three, each of another endpoint. Empty: none is known.
    pub picks: Vec<Pick>,
    /// None: ranked with the prefix index.
    pub load_only: Option<Reason>,
    /// Of the first prompt; 0 where it was not tokenized.
    pub prompt_tokens: u32,
    /// Tokens of it that the best holder has.
    pub reachable_tokens: u32,
    pub policy: &'static str,
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
    view: Arc<View>,
    index: Arc<RwLock<Index>>,
    books: Arc<Mutex<Books>>,
    ids: DecisionIds,
    clock: Clock,
    settings: Settings,
    turn: AtomicU64,
    metrics: DecideMetrics,
}

/// What of the configuration decisions depend on.
#[derive(Clone, Copy, Debug)]
struct Settings {
    policy: PolicyConfig,
    reservation_ms: u64,
    speculative_ms: u64,
    beat_ms: u64,
}

/// What the decider shares with the rest of the program.
#[derive(Clone, Debug)]
pub struct Shared {
    pub view: Arc<View>,
    pub index: Arc<RwLock<Index>>,
    pub books: Arc<Mutex<Books>>,
    pub clock: Clock,
}

/// What a ranking can go by.
struct Basis {
    /// None: the prompt's tokens are not known.
    measured: Option<Measured>,
    /// None: its hits count.
    load_only: Option<Reason>,
    block_tokens: u32,
}

/// Everything that one pick goes by.
struct Round<'a> {
    policy: Policy,
    model: Option<ModelIndex>,
    endpoints: &'a [&'a Endpoint],
    basis: &'a Basis,
    demand: Demand,
    sequences: u32,
}

// === impl Decider ===

impl Decider {
    pub fn new(config: &Config, models: Models, shared: Shared, metrics: DecideMetrics) -> Self {
        let Shared { view, index, books, clock } = shared;
        let ids = DecisionIds::new(books.lock().own());
        Self {
            measurer: Arc::new(Measurer { models, index: index.clone(), metrics: metrics.clone() }),
            pool: Pool::new(config.limits.tokenizer_threads, config.limits.tokenizer_queue),
            view,
            index,
            books,
            ids,
            clock,
            settings: Settings {
                policy: config.policy,
                reservation_ms: config.leases.reservation_ms,
                speculative_ms: config.leases.speculative_ms,
                beat_ms: config.scrape.interval_ms,
            },
            turn: AtomicU64::new(0),
            metrics,
        }
    }

    /// Decides one request.
    pub async fn decide(&self, mut question: Question) -> Decision {
        let begun = Instant::now();
        let snapshot = self.view.current();
        let model = self.measurer.models.resolve(&question.model);
        let policy = question.policy.unwrap_or_else(|| self.settings.policy.policy());
        let sequences = question.sequences();
        let estimated_bytes = question.estimated_bytes();
        let measured = match model {
            Some(model) => self.measure(&mut question, model).await,
            None => Err(Reason::UnknownModel),
        };
        let endpoints = serving(&snapshot, model);
        let basis = self.basis(&endpoints, measured);
        let demand = basis.demand(estimated_bytes);
        let picking = Instant::now();
        let decision =
            self.pick(&Round { policy, model, endpoints: &endpoints, basis: &basis, demand, sequences });
        self.metrics.rank.observe(picking.elapsed().as_secs_f64());
        self.count(&decision);
        self.metrics.whole.observe(begun.elapsed().as_secs_f64());
        decision
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

    async fn measure(&self, question: &mut Question, model: ModelIndex) -> Result<Measured, Reason> {
        if let Prompt::Absent(reason) = question.prompt {
            return Err(reason);
        }
        let inline = question.prompt.token_count().is_some_and(|tokens| tokens <= INLINE_TOKENS_MAX);
        let bytes = question.prompt.bytes();
        let is_text = question.prompt.token_count().is_none();
        let lane = if is_text && bytes > QUICK_TEXT_BYTES_MAX { Lane::Long } else { Lane::Quick };
        let job = Job::take(question, model);
        if inline {
            return self.measurer.measure(job);
        }
        let measurer = self.measurer.clone();
        let measuring = self.pool.run(lane, bytes, question.answer_by, move || measurer.measure(job));
        measuring.await.unwrap_or_else(|error| {
            Err(match error {
                PoolError::Busy => Reason::Busy,
                PoolError::Late => Reason::Late,
                PoolError::Panicked => Reason::Failed,
            })
        })
    }

    /// Whether the hits say anything about these endpoints.
    fn basis(&self, endpoints: &[&Endpoint], measured: Result<Measured, Reason>) -> Basis {
        let known = self.known_stream(endpoints);
        let block_tokens = known.and_then(|stream| stream.block_size);
        let (measured, load_only) = match measured {
            Err(reason) => (None, Some(reason)),
            Ok(measured) if known.is_none() => (Some(measured), Some(Reason::NoEvents)),
            // The last token is always computed, so a prompt of one block has no block to reuse.
            Ok(measured) if block_tokens.is_some_and(|block| measured.prompt_tokens <= block) => {
                (Some(measured), Some(Reason::BelowBlock))
            }
            Ok(measured) => (Some(measured), None),
        };
        Basis { measured, load_only, block_tokens: block_tokens.unwrap_or(TIE_TOKENS_DEFAULT) }
    }

    /// A stream of these endpoints whose cache is known, with its block size if it can be: one that has told of
    /// blocks, or one that is live and so is known to hold none.
    fn known_stream(&self, endpoints: &[&Endpoint]) -> Option<StreamStats> {
        let index = self.index.read();
        let places = endpoints.iter().flat_map(|endpoint| &endpoint.ranks).map(|rank| rank.place);
        let mut live = None;
        for stream in places.filter_map(|place| index.stream_stats(place)).filter(|s| s.trust.is_scored()) {
            if stream.block_size.is_some() {
                return Some(stream);
            }
            live = live.or((stream.trust == Trust::Live).then_some(stream));
        }
        live
    }

    /// Looks up, ranks, reserves and speculates in one step, under the mutex of the books.
    fn pick(&self, round: &Round<'_>) -> Decision {
        let now = self.clock.now();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let id = self.ids.next();
        let keys = round.basis.keys();

        let mut books = self.books.lock();
        let mut hits = Hits::default();
        if let Some(keys) = keys {
            let begun = Instant::now();
            self.index.read().hits(keys, &mut hits);
            self.metrics.lookup.observe(begun.elapsed().as_secs_f64());
        }
        let cached = |place| hits.tokens(place);
        let (seats, candidates) = gather(round.endpoints, cached, books.ledger(), now, self.settings.beat_ms);
        let ranking = rank(round.policy, round.demand, &candidates, turn, &mut rand::random);
        let best = best_of_each_endpoint(&ranking, &seats, &candidates);
        if let Some((seat, _, ranked)) = best.first() {
            let placed = Placed {
                endpoint: seat.endpoint.clone(),
                rank: seat.rank.unwrap_or(0),
                queued_tokens: ranked.uncached_tokens,
                sequences: round.sequences,
                lease_ms: self.settings.reservation_ms,
            };
            let forecast = round.forecast(&best);
            if let Err(error) = books.reserve(id, seat.place, placed, forecast, now) {
                self.metrics.unreserved.inc();
                tracing::debug!(%error, "a decision is not counted");
            }
            if let Some(keys) = keys {
                let expires_at = now.plus(self.settings.speculative_ms);
                self.index.write().speculate(seat.place, keys, expires_at);
            }
        }
        drop(books);

        let reachable_tokens = candidates.iter().map(|candidate| candidate.cached_tokens).max().unwrap_or(0);
        Decision {
            id,
            picks: best
                .into_iter()
                .map(|(seat, candidate, ranked)| Pick {
                    endpoint: seat.endpoint.clone(),
                    rank: seat.rank,
                    candidate: candidate.clone(),
                    ranked: ranked.clone(),
                })
                .collect(),
            load_only: round.basis.load_only,
            prompt_tokens: round.basis.measured.as_ref().map_or(0, |measured| measured.prompt_tokens),
            reachable_tokens,
            policy: round.policy.name(),
        }
    }

    fn count(&self, decision: &Decision) {
        let outcome = if decision.load_only.is_none() { "scored" } else { "load_only" };
        let reason = decision.load_only.map_or("", Reason::name);
        let labels = DecisionLabels { policy: decision.policy, outcome, reason };
        self.metrics.decisions.get_or_create(&labels).inc();
        if decision.load_only.is_none() {
            let selected = decision.picks.first().map_or(0, |pick| pick.candidate.cached_tokens);
            self.metrics.prompt_tokens.inc_by(decision.prompt_tokens.into());
            self.metrics.reachable_tokens.inc_by(decision.reachable_tokens.into());
            self.metrics.selected_tokens.inc_by(selected.into());
        }
    }
}

// === impl Basis ===

impl Basis {
    /// The keys to look up; None: hits do not count.
    fn keys(&self) -> Option<&PromptKeys> {
        self.measured.as_ref().filter(|_| self.load_only.is_none()).map(|measured| &measured.keys)
    }

    /// The request's size; estimated from its bytes where its tokens are not known.
    fn demand(&self, estimated_bytes: u64) -> Demand {
        let (prompt_tokens, further_tokens) = match &self.measured {
            Some(measured) => (measured.prompt_tokens, measured.further_tokens),
            None => (u32::try_from(estimated_bytes / BYTES_PER_TOKEN).unwrap_or(u32::MAX), 0),
        };
        Demand { prompt_tokens, further_tokens, tie_tokens: self.block_tokens }
    }
}

// === impl Round ===

impl Round<'_> {
    /// What is predicted for each endpoint that may serve it.
    fn forecast(&self, best: &[(&Seat, &Candidate, &Ranked)]) -> Forecast {
        let predicts =
            self.basis.load_only.is_none() && self.basis.measured.as_ref().is_some_and(|m| m.single);
        let cached = best.iter().map(|(seat, candidate, _)| (seat.place, candidate.cached_tokens));
        Forecast {
            model: self.model.map(|model| model.0),
            policy: self.policy.name(),
            cached_tokens: cached.filter(|_| predicts).collect(),
        }
    }
}

/// The best rank of each endpoint, best first, as many as a filter takes: a retry has to go elsewhere.
fn best_of_each_endpoint<'a>(
    ranking: &'a [Ranked],
    seats: &'a [Seat],
    candidates: &'a [Candidate],
) -> Vec<(&'a Seat, &'a Candidate, &'a Ranked)> {
    let mut best: Vec<(&Seat, &Candidate, &Ranked)> = Vec::with_capacity(CANDIDATES_MAX);
    for ranked in ranking {
        let (Some(seat), Some(candidate)) = (seats.get(ranked.index), candidates.get(ranked.index)) else {
            continue;
        };
        if best.iter().all(|(taken, _, _)| taken.endpoint != seat.endpoint) {
            best.push((seat, candidate, ranked));
        }
        if best.len() == CANDIDATES_MAX {
            break;
        }
    }
    best
}
