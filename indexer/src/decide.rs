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
use tokio::sync::watch;
use warmpath_core::rank::{Candidate, Policy, Ranked, rank};
use warmpath_kv::index::{Reader, StreamState};
use warmpath_kv::{Hits, Index, Millis, StreamId, Trust};

mod candidates;
mod keys;
mod measure;
mod memo_metrics;
pub mod metrics;
mod pool;
mod question;
mod reason;
mod recognize;
mod round;
mod split;
#[cfg(test)]
mod tests;
mod turns;
mod verdict;

pub use candidates::SAMPLE_BEATS;
pub use keys::PromptMemo;
pub use memo_metrics::MemoCollector;
pub use question::{Chat, Members, Prompt, Question};
pub use reason::Reason;
pub use verdict::Verdict;

use crate::answers::ResponseKey;
use crate::books::{Books, DecisionIds, Placed};
use crate::clock::Clock;
use crate::config::{Config, Outliers, PolicyConfig};
use crate::engines::Directory;
use crate::fleet::{Endpoint, Heard, Snapshot, View};
use crate::ledger::{DecisionId, Ledger};
use crate::lengths::OutputLengths;
use crate::models::{LoadedModel, Registry, Target};
use crate::receipts::{self, Considered, Fate, Receipt, Receipts, Reserved};
use crate::volatile::VolatileHeads;
use candidates::{Circumstances, Seat, choosable, gather, serving, weighed};
use measure::{Job, Measured, Measurer};
use metrics::{ChoiceLabels, DecideMetrics, DecisionLabels};
use pool::{Lane, Pool, PoolError};
use recognize::{Recognizable, Recognizer};
use round::{Basis, Round, best_of_each_endpoint, put_first};
use split::Split;
use turns::Turns;

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

/// Candidates and their order.
struct Ranking {
    seats: Vec<Seat>,
    candidates: Vec<Candidate>,
    ranked: Vec<Ranked>,
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
            recognizer: Recognizer::new(index),
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
        let policy = question.policy.unwrap_or_else(|| self.split.policy(question.group_key, rand::random()));
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
        // An adapter's folder on the engine is part of its hashes, and is not known.
        let bare = named.as_ref().filter(|(_, target)| target.adapter.is_none());
        let hasher = bare.and_then(|(model, _)| model.block_hash).filter(|_| purpose == Purpose::Decide);
        let turn = hasher.and_then(|hasher| self.recognizer.turn(&endpoints, hasher));
        let salt = turn.as_ref().and_then(|_| question.cache_salt.clone());
        let measured = match (question.previous_response, named) {
            // What the engine keeps of earlier turns is part of the prompt, and is not known here.
            (Some(_), _) if keeper.is_some() => Err(Reason::PreviousResponse),
            (Some(_), _) => Err(Reason::PreviousResponseUnknown),
            (None, Some((model, target))) => {
                let mut job = Job::take(&mut question, model, target.adapter);
                job.keeps_ids = turn.is_some();
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
        let round = Round { policy, model, endpoints: &endpoints, basis: &basis, demand, sequences, keeper };
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

    /// The name of the endpoint, if it is one of these, that keeps a response.
    fn keeper(&self, key: ResponseKey, fleet: &Snapshot, endpoints: &[&Endpoint]) -> Option<Arc<str>> {
        let place = self.books.lock().answers().place(key)?;
        let (keeper, _) = fleet.by_place(place)?;
        endpoints.iter().any(|endpoint| endpoint.name == keeper.name).then(|| keeper.name.clone())
    }

    async fn measure(
        &self,
        mut job: Job,
        answer_by: Option<tokio::time::Instant>,
    ) -> Result<Measured, Reason> {
        if let Prompt::Absent(reason) = job.prompt {
            return Err(reason);
        }
        let inline = job.prompt.token_count().is_some_and(|tokens| tokens <= INLINE_TOKENS_MAX);
        let bytes = job.prompt.bytes();
        let is_text = job.prompt.token_count().is_none();
        let lane = if is_text && bytes > QUICK_TEXT_BYTES_MAX { Lane::Long } else { Lane::Quick };
        if inline {
            return self.measurer.measure(job);
        }
        job.give_up_at = answer_by;
        let measurer = self.measurer.clone();
        let measuring = self.pool.run(lane, bytes, answer_by, move || measurer.measure(job));
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
        let (measured, verdict) = match measured {
            Err(reason) => (None, Verdict::LoadOnly(reason)),
            Ok(measured) => {
                let is_short = block_tokens.is_some_and(|block| measured.prompt_tokens <= block);
                let verdict = match measured.cut_by {
                    _ if known.is_none() => Verdict::LoadOnly(Reason::NoEvents),
                    Some(reason) if is_short => Verdict::LoadOnly(reason),
                    Some(reason) => Verdict::ScoredInPart(reason),
                    // The last token is always computed, so a prompt of one block has no block to reuse.
                    None if is_short => Verdict::LoadOnly(Reason::BelowBlock),
                    None => Verdict::Scored,
                };
                (Some(measured), verdict)
            }
        };
        Basis { measured, verdict, block_tokens: block_tokens.unwrap_or(TIE_TOKENS_DEFAULT) }
    }

    /// A stream of these endpoints whose cache is known, with its block size if it can be: one that has told of
    /// blocks, or one that is live and so is known to hold none; the size of its blocks is guessed at best.
    fn known_stream(&self, endpoints: &[&Endpoint]) -> Option<StreamState> {
        let places = endpoints.iter().flat_map(|endpoint| &endpoint.ranks).map(|rank| rank.place);
        let mut live = None;
        for stream in places.filter_map(|place| self.cached.stream(place)).filter(|s| s.trust.is_scored()) {
            if stream.has_told {
                return Some(stream);
            }
            let is_better = live.is_none_or(|live: StreamState| live.block_size.is_none());
            if stream.trust == Trust::Live && is_better {
                live = Some(stream);
            }
        }
        live
    }

    /// Whether all that the place's cache holds is known.
    fn is_cache_known(&self, place: StreamId) -> bool {
        self.cached.stream(place).is_some_and(|stream| stream.trust == Trust::Live)
    }

    /// Looks up, ranks, reserves and speculates in one step, under the mutex of the books.
    fn pick(&self, round: &Round<'_>) -> (Decision, Ranking) {
        let now = self.clock.now();
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let turn = self.turns.next(round.model.map(|model| model.index), round.policy);
        let id = self.ids.next();

        let mut books = self.books.lock();
        let ranking = self.rank(round, books.ledger(), turn, now);
        let best = ranking.best();
        let mut reserved = None;
        if let Some((seat, candidate, ranked)) = best.first() {
            let placed = Placed {
                endpoint: seat.endpoint.clone(),
                rank: seat.rank.unwrap_or(0),
                queued_tokens: ranked.uncached_tokens,
                sequences: round.sequences,
                lease_ms: self.settings.reservation_ms,
            };
            // Taken for work that the engine's cache spared it, tokens would make it look fast.
            let knows = round.is_size_known() && self.is_cache_known(seat.place);
            let work_tokens = knows.then(|| candidate.queued_tokens.saturating_add(ranked.uncached_tokens));
            let forecast = round.forecast(&best, ranking.reachable_tokens(), work_tokens);
            match books.reserve(id, seat.place, placed.clone(), forecast, now) {
                Ok(()) => reserved = Some(placed),
                Err(error) => {
                    self.metrics.unreserved.inc();
                    tracing::debug!(%error, "a decision is not counted");
                }
            }
            let cold = (ranking.reachable_tokens() == 0).then_some(number + 1);
            seat.meter.note_pick(ranked.uncached_tokens, cold, now);
            if let Some(picked) = round.endpoints.iter().find(|endpoint| endpoint.name == seat.endpoint) {
                picked.meter.hear(Heard::Picked, self.settings.outliers, now);
            }
            if let Some(keys) = round.basis.keys() {
                let expires_at = now.plus(self.settings.speculative_ms);
                self.cached.speculate(seat.place, keys, expires_at);
            }
        }
        drop(books);
        (round.decision(id, &ranking, reserved), ranking)
    }

    /// What [`Self::pick`] would come to, without doing any of it.
    fn weigh(&self, round: &Round<'_>) -> (Decision, Ranking) {
        let turn = self.turns.peek(round.model.map(|model| model.index), round.policy);
        let ranking = self.rank(round, self.books.lock().ledger(), turn, self.clock.now());
        (round.decision(DecisionId(0), &ranking, None), ranking)
    }

    /// Looks up what the candidates hold, and puts them in order.
    fn rank(&self, round: &Round<'_>, ledger: &Ledger, turn: u64, now: Millis) -> Ranking {
        let mut hits = Hits::default();
        if let Some(keys) = round.basis.keys() {
            let begun = Instant::now();
            self.cached.hits(keys, &mut hits);
            self.metrics.lookup.observe(begun.elapsed().as_secs_f64());
        }
        let policy = &self.settings.policy;
        let cached = |place| weighed(&hits, place, policy.slower_media);
        let circumstances = Circumstances {
            ledger,
            now,
            beat_ms: self.settings.beat_ms,
            slow_start_ms: policy.slow_start_ms,
            zone: policy.zone.as_deref(),
            other_zone_tokens: policy.other_zone_tokens,
        };
        // While the prompt was measured, another request may have become the one that tries an endpoint anew.
        let endpoints = choosable(round.endpoints, round.keeper.as_deref(), now);
        let (seats, candidates) = gather(&endpoints, cached, circumstances);
        let mut ranked = rank(round.policy, round.demand, &candidates, turn, &mut rand::random);
        if let Some(keeper) = &round.keeper {
            put_first(keeper, &mut ranked, &seats);
        }
        Ranking { seats, candidates, ranked }
    }

    /// Everything that a decision went by.
    fn receipt(
        &self,
        round: &Round<'_>,
        decision: &Decision,
        ranking: &Ranking,
        purpose: Purpose,
    ) -> Receipt {
        let considered = ranking.in_order().take(receipts::CANDIDATES_MAX);
        let considered = considered.map(|(seat, candidate, ranked)| {
            let trust = self.cached.stream(seat.place).map(|stream| stream.trust.name());
            Considered::new(seat.endpoint.clone(), seat.rank, trust, candidate, ranked)
        });
        Receipt {
            decision: (purpose == Purpose::Decide).then(|| format!("{:016x}", decision.id.0)),
            at_unix_ms: receipts::unix_ms(),
            model: round.model.map(|model| self.registry.name(model.index).to_string()).unwrap_or_default(),
            policy: decision.policy,
            outcome: decision.verdict.outcome(),
            reason: decision.verdict.reason(),
            prompt_tokens: decision.prompt_tokens,
            further_tokens: round.demand.further_tokens,
            reachable_tokens: decision.reachable_tokens,
            candidates: considered.collect(),
            candidates_considered: ranking.candidates.len(),
            reserved: decision.reserved.clone(),
            fate: Fate::default(),
        }
    }

    fn count(&self, decision: &Decision) {
        let labels = DecisionLabels {
            policy: decision.policy,
            outcome: decision.verdict.outcome(),
            reason: decision.verdict.reason(),
        };
        self.metrics.decisions.get_or_create(&labels).inc();
        if decision.verdict.is_scored() {
            let selected = decision.picks.first().map_or(0, |pick| pick.candidate.cached_tokens);
            self.metrics.prompt_tokens.inc_by(decision.prompt_tokens.into());
            self.metrics.reachable_tokens.inc_by(decision.reachable_tokens.into());
            self.metrics.selected_tokens.inc_by(selected.into());
            let choice = match (decision.reachable_tokens, selected) {
                (0, _) => "cold",
                (reachable, selected) if selected < reachable => "spill",
                _ => "holder",
            };
            let labels = ChoiceLabels { policy: decision.policy, choice };
            self.metrics.choices.get_or_create(&labels).inc();
        }
    }
}

// === impl Ranking ===

impl Ranking {
    /// All candidates, best first.
    fn in_order(&self) -> impl Iterator<Item = (&Seat, &Candidate, &Ranked)> {
        self.ranked.iter().filter_map(|ranked| {
            Some((self.seats.get(ranked.index)?, self.candidates.get(ranked.index)?, ranked))
        })
    }

    /// Those that a gateway is told of.
    fn best(&self) -> Vec<(&Seat, &Candidate, &Ranked)> {
        best_of_each_endpoint(&self.ranked, &self.seats, &self.candidates)
    }

    /// Tokens that the best holder of all has.
    fn reachable_tokens(&self) -> u32 {
        self.candidates.iter().map(|candidate| candidate.cached_tokens).max().unwrap_or(0)
    }
}
