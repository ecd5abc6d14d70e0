//! The scheduler of one rank: continuous batching with chunked prefill, in virtual time.
//!
//! ```text
//!            launch (work and its time has come)
//!   Idle ─────────────────────────────────────────▶ InFlight { ends }
//!    ▲                                                   │
//!    └────────────── land (ends reached) ────────────────┘
//! ```
//!
//! `launch` decides what the step computes and takes the blocks for it, `land` hands out one token to every sequence
//! whose known tokens are all computed and publishes the step's events. A step starts where the one before ended, so
//! late calls of [`Engine::step`] do not shift the following steps.

use std::collections::VecDeque;
use std::time::Duration;

use super::KvEvent;
use super::cache::Cache;
use super::hash::{Digest, Seed};
use super::pool::{CachedBlock, Pool};
use super::sequence::{Request, RequestId, Sequence};
use super::timing::Timing;

/// What a rank is made of.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Tokens per block.
    pub block_size: usize,
    /// Physical blocks, the null block included.
    pub blocks: usize,
    /// Token budget of a step.
    pub max_batched_tokens: usize,
    /// Sequences running at once.
    pub max_seqs: usize,
    /// Prompt and output tokens of a request; never more than the pool holds.
    pub max_model_len: usize,
    /// Durations.
    pub timing: Timing,
    /// Beginning of all digest chains.
    pub seed: Seed,
    /// Whether released blocks without content are reused before any cached one (vLLM 0.23 and newer).
    pub reuses_empty_first: bool,
}

/// Why a request cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// No prompt token.
    #[error("prompt is empty: at least one token is needed")]
    EmptyPrompt,
    /// Nothing to generate.
    #[error("max_tokens is 0: at least one token must be generated")]
    NoOutput,
    /// It would not fit even alone.
    #[error("prompt of {prompt} and max_tokens of {output} exceed the context length of {limit} tokens")]
    TooLong {
        /// Prompt tokens.
        prompt: usize,
        /// Tokens to generate.
        output: usize,
        /// What fits.
        limit: usize,
    },
}

/// One generated token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Whose.
    pub request: RequestId,
    /// When the step that made it ended.
    pub at: Duration,
    /// Its id.
    pub token: u32,
    /// Its number, from 0.
    pub index: usize,
    /// Whether the request is finished with it.
    pub last: bool,
    /// Prompt tokens that came from the prefix cache when the request was first admitted.
    pub cached_tokens: usize,
}

/// The events of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// When the step ended.
    pub at: Duration,
    /// In order.
    pub events: Vec<KvEvent>,
}

/// What happened until the time given to [`Engine::step`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Effects {
    /// In order of time.
    pub tokens: Vec<Token>,
    /// In order of time; steps without events have none.
    pub batches: Vec<Batch>,
}

/// Totals since the rank started.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Prompt tokens of requests that looked into the prefix cache.
    pub prefix_queries: u64,
    /// Those found there.
    pub prefix_hits: u64,
    /// Prompt tokens of requests whose prefill is done.
    pub prompt_tokens: u64,
    /// Tokens made.
    pub generation_tokens: u64,
    /// Sequences thrown back to the waiting queue.
    pub preemptions: u64,
    /// Requests finished.
    pub finished: u64,
    /// Requests aborted.
    pub aborted: u64,
    /// Steps done.
    pub steps: u64,
}

/// The inside of a rank at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The parent digest of first blocks.
    pub root: Digest,
    /// The prefix cache, in no particular order.
    pub cached: Vec<CachedBlock>,
    /// Sequences in steps.
    pub running: usize,
    /// Sequences not admitted yet.
    pub waiting: usize,
    /// Share of blocks held, 0 to 1.
    pub usage: f64,
    /// Changes of the prefix cache that no batch has told of yet.
    pub unpublished: usize,
    /// Totals.
    pub counters: Counters,
}

#[derive(Debug)]
enum State {
    /// Nothing is computed; the last step ended at `since`.
    Idle { since: Duration },
    /// A step is computed.
    InFlight { ends: Duration, work: Vec<RequestId> },
}

/// One data-parallel rank.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    cache: Cache,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    state: State,
    slow: f64,
    counters: Counters,
}

// === impl Engine ===

impl Engine {
    /// An engine with an empty cache, at time zero.
    pub fn new(config: EngineConfig) -> Self {
        let pool = Pool::new(config.blocks, config.reuses_empty_first);
        let cache = Cache::new(pool, config.seed, config.block_size);
        Self {
            config,
            cache,
            waiting: VecDeque::new(),
            running: Vec::new(),
            state: State::Idle { since: Duration::ZERO },
            slow: 1.0,
            counters: Counters::default(),
        }
    }

    /// Queues a request. Times of arrival must not decrease from call to call.
    pub fn submit(&mut self, request: Request) -> Result<(), SubmitError> {
        let (prompt, output) = (request.prompt.len(), request.output.len());
        if prompt == 0 {
            return Err(SubmitError::EmptyPrompt);
        }
        if output == 0 {
            return Err(SubmitError::NoOutput);
        }
        let limit = self.context_limit();
        if prompt + output > limit {
            return Err(SubmitError::TooLong { prompt, output, limit });
        }
        self.waiting.push_back(Sequence::new(request));
        Ok(())
    }

    /// Tokens of prompt and output that one request may have.
    pub fn context_limit(&self) -> usize {
        self.config.max_model_len.min(self.cache.usable_blocks() * self.config.block_size)
    }

    /// Forgets a request; what it computed stays cached. Unknown ids are ignored: it may just have finished.
    pub fn abort(&mut self, id: RequestId) {
        if let Some(position) = self.waiting.iter().position(|s| s.request.id == id) {
            self.waiting.remove(position);
            self.counters.aborted += 1;
        }
        if let Some(position) = self.running.iter().position(|s| s.request.id == id) {
            let mut sequence = self.running.remove(position);
            self.cache.release(&mut sequence);
            self.counters.aborted += 1;
        }
    }

    /// Drops the prefix cache unless a request holds blocks. The event is published with the next step's batch.
    pub fn reset_prefix_cache(&mut self) -> bool {
        self.cache.reset()
    }

    /// Stretches the following steps; 1.0 is normal.
    pub fn set_slowdown(&mut self, factor: f64) {
        self.slow = factor;
    }

    /// When [`Engine::step`] has something to do next; `None` while there is no work.
    pub fn next_wake(&self) -> Option<Duration> {
        match &self.state {
            State::InFlight { ends, .. } => Some(*ends),
            State::Idle { since } => self.next_start(*since),
        }
    }

    /// Does everything that is due at `now`. Time must not go back from call to call.
    pub fn step(&mut self, now: Duration) -> Effects {
        let mut effects = Effects::default();
        while let Some(due) = self.next_wake().filter(|due| *due <= now) {
            let idle = State::Idle { since: due };
            match std::mem::replace(&mut self.state, idle) {
                State::InFlight { ends, work } => self.land(ends, &work, &mut effects),
                State::Idle { .. } => {
                    let Some(flight) = self.launch(due) else { break };
                    self.state = flight;
                }
            }
        }
        effects
    }

    /// The inside, for audits and metrics.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { cached: self.cache.cached(), ..self.summary() }
    }

    /// As [`Engine::snapshot`], without the cached blocks.
    pub fn summary(&self) -> Snapshot {
        Snapshot {
            root: self.cache.root(),
            cached: Vec::new(),
            running: self.running.len(),
            waiting: self.waiting.len(),
            usage: self.cache.usage(),
            unpublished: self.cache.unpublished(),
            counters: self.counters,
        }
    }

    fn next_start(&self, idle_since: Duration) -> Option<Duration> {
        if !self.running.is_empty() {
            return Some(idle_since);
        }
        self.waiting.front().map(|first| idle_since.max(first.request.arrived))
    }

    /// Plans a step that starts at `start`; `None` if nothing could be scheduled.
    fn launch(&mut self, start: Duration) -> Option<State> {
        let mut plan = Plan { budget: self.config.max_batched_tokens, ..Plan::default() };
        let preempted = self.schedule_running(&mut plan);
        if !preempted {
            self.schedule_waiting(start, &mut plan);
        }
        if plan.work.is_empty() {
            return None;
        }
        let duration = self.config.timing.step(plan.prefill_tokens, plan.decodes, self.slow);
        Some(State::InFlight { ends: start + duration, work: plan.work })
    }

    /// Continues the running sequences, oldest first; true if one had to give up its blocks.
    fn schedule_running(&mut self, plan: &mut Plan) -> bool {
        let mut preempted = false;
        let mut index = 0;
        while plan.budget > 0 {
            let Some(sequence) = self.running.get_mut(index) else { break };
            let new_tokens = (sequence.len() - sequence.computed).min(plan.budget);
            let prefills = sequence.prefills();
            if self.cache.extend(sequence, &[], new_tokens) {
                plan.add(sequence.request.id, new_tokens, prefills);
                index += 1;
            } else {
                // The newest running sequence makes room, possibly the one that asked.
                self.preempt_last();
                preempted = true;
            }
        }
        preempted
    }

    fn preempt_last(&mut self) {
        let Some(mut victim) = self.running.pop() else { return };
        self.cache.release(&mut victim);
        self.counters.preemptions += 1;
        self.waiting.push_front(victim);
    }

    /// Admits waiting sequences in order, as long as budget, seats and blocks last.
    fn schedule_waiting(&mut self, start: Duration, plan: &mut Plan) {
        while plan.budget > 0 && self.running.len() < self.config.max_seqs {
            let Some(sequence) = self.waiting.front_mut().filter(|s| s.request.arrived <= start) else {
                break;
            };
            let hit = if sequence.request.reads_cache { self.cache.find_hit(sequence) } else { Vec::new() };
            let hit_tokens = hit.len() * self.config.block_size;
            let new_tokens = (sequence.len() - hit_tokens).min(plan.budget);
            let prefills = sequence.prefills();
            if !self.cache.extend(sequence, &hit, new_tokens) {
                break;
            }
            let Some(mut sequence) = self.waiting.pop_front() else { break };
            if sequence.hit.is_none() {
                sequence.hit = Some(hit_tokens);
                if sequence.request.reads_cache {
                    self.counters.prefix_queries += sequence.request.prompt.len() as u64;
                    self.counters.prefix_hits += hit_tokens as u64;
                }
            }
            plan.add(sequence.request.id, new_tokens, prefills);
            self.running.push(sequence);
        }
    }

    fn land(&mut self, at: Duration, work: &[RequestId], effects: &mut Effects) {
        for &id in work {
            let Some(position) = self.running.iter().position(|s| s.request.id == id) else { continue };
            let Some(sequence) = self.running.get_mut(position) else { continue };
            let Some(token) = sequence.request.output.get(sequence.generated).copied() else { continue };
            if sequence.computed < sequence.len() {
                continue;
            }
            let index = sequence.generated;
            sequence.generated += 1;
            let last = sequence.generated == sequence.request.output.len();
            let cached_tokens = sequence.hit.unwrap_or(0);
            self.counters.generation_tokens += 1;
            if index == 0 {
                self.counters.prompt_tokens += sequence.request.prompt.len() as u64;
            }
            effects.tokens.push(Token { request: id, at, token, index, last, cached_tokens });
            if last {
                let mut finished = self.running.remove(position);
                self.cache.release(&mut finished);
                self.counters.finished += 1;
            }
        }
        self.counters.steps += 1;
        let events = self.cache.take_events();
        if !events.is_empty() {
            effects.batches.push(Batch { at, events });
        }
    }
}

/// The step being put together.
#[derive(Debug, Default)]
struct Plan {
    budget: usize,
    work: Vec<RequestId>,
    prefill_tokens: usize,
    decodes: usize,
}

impl Plan {
    fn add(&mut self, id: RequestId, new_tokens: usize, prefills: bool) {
        self.budget -= new_tokens;
        self.work.push(id);
        if prefills {
            self.prefill_tokens += new_tokens;
        } else {
            self.decodes += 1;
        }
    }
}

#[cfg(test)]
mod tests;
