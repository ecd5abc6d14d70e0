//! A replica in virtual time: continuous batching with chunked prefill over a block pool with a prefix cache.
//!
//! The rules are those of the emulated engine (`tests/emulator`), which is held to recordings of real ones; a test runs
//! both on random requests and wants equal times, hits and caches. What differs is the cost of running it: prompts are
//! chains of ids in place of tokens, and nothing is made of a step but when requests reach their first and last token.
//!
//! ```text
//! submit ─▶ waiting ─▶ running ─▶ Effects { firsts, lasts, batches }
//!              ▲          │
//!              └──────────┘ preemption: the pool has no block left
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use warmpath_kv::event::Batch;

use crate::cache::Cache;
use crate::prompt::Prompt;
use crate::sequence::Sequence;

/// What a replica is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaSpec {
    /// Tokens per block.
    pub block_tokens: u32,
    /// Blocks that requests can have.
    pub blocks: u32,
    /// Token budget of a step.
    pub max_batched_tokens: u32,
    /// Sequences running at once.
    pub max_seqs: usize,
    /// Durations.
    pub timing: Timing,
}

/// `step = slow · (step_overhead + prefill_tokens / prefill_tokens_per_second + decodes · decode_cost)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Paid by every step.
    pub step_overhead: Duration,
    /// Prompt tokens per second beyond the overhead.
    pub prefill_tokens_per_second: f64,
    /// Paid per sequence that decodes one token.
    pub decode_cost: Duration,
}

/// A request as a replica sees it.
#[derive(Clone, Debug)]
pub struct Job {
    /// Unique among those alive.
    pub id: usize,
    /// When it reached the replica. Must not decrease from job to job.
    pub arrived: Duration,
    /// What is asked.
    pub prompt: Prompt,
    /// Tokens of the answer, at least one.
    pub output: u32,
}

/// The first token of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// Whose.
    pub id: usize,
    /// When.
    pub at: Duration,
    /// Prompt tokens that were in the prefix cache when it was first admitted.
    pub cached: u32,
}

/// What happened until the time given to [`Replica::step`], in order of time.
#[derive(Debug, Default)]
pub struct Effects {
    /// First tokens.
    pub firsts: Vec<First>,
    /// Requests that are finished, and when.
    pub lasts: Vec<(usize, Duration)>,
    /// Changes of the cache, one batch a step.
    pub batches: Vec<Batch>,
}

/// Totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Prompt tokens of admitted requests.
    pub queries: u64,
    /// Those found in the prefix cache.
    pub hits: u64,
    /// Sequences thrown back to the waiting queue.
    pub preemptions: u64,
    /// Requests finished.
    pub finished: u64,
    /// Blocks that left the cache for others.
    pub evicted: u64,
}

/// What its `/metrics` would say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gauges {
    /// Sequences in steps.
    pub running: usize,
    /// Sequences not admitted yet.
    pub waiting: usize,
    /// Share of the blocks that requests hold.
    pub kv_usage: f64,
    /// Tokens for which there are blocks that nobody holds.
    pub room_tokens: u64,
    /// Blocks with something cached in them.
    pub cached_blocks: u64,
    /// Blocks that left the cache, ever.
    pub evicted_blocks: u64,
    /// Share of the blocks with something cached in them or held.
    pub occupied: f64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing is computed; the last step ended at `since`.
    Idle { since: Duration },
    /// The first `work` running sequences are computed.
    InFlight { ends: Duration, work: usize },
}

/// One replica.
#[derive(Debug)]
pub struct Replica {
    spec: ReplicaSpec,
    cache: Cache,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    state: State,
    slow: f64,
    counters: Counters,
}

/// The step being put together.
struct Plan {
    budget: u32,
    work: usize,
    prefill_tokens: u32,
    decodes: u32,
}

// === impl Timing ===

impl Timing {
    fn step(&self, plan: &Plan, slow: f64) -> Duration {
        let prefill = f64::from(plan.prefill_tokens) / self.prefill_tokens_per_second;
        let decode = self.decode_cost.as_secs_f64() * f64::from(plan.decodes);
        Duration::from_secs_f64(slow * (self.step_overhead.as_secs_f64() + prefill + decode))
    }
}

// === impl Plan ===

impl Plan {
    fn add(&mut self, new_tokens: u32, prefills: bool) {
        self.budget -= new_tokens;
        self.work += 1;
        if prefills {
            self.prefill_tokens += new_tokens;
        } else {
            self.decodes += 1;
        }
    }
}

// === impl Replica ===

impl Replica {
    /// With an empty cache, at time `now`.
    pub fn new(spec: ReplicaSpec, now: Duration) -> Self {
        Self {
            cache: Cache::new(spec.blocks, spec.block_tokens),
            spec,
            waiting: VecDeque::new(),
            running: Vec::new(),
            state: State::Idle { since: now },
            slow: 1.0,
            counters: Counters::default(),
        }
    }

    /// Queues a request.
    pub fn submit(&mut self, job: Job) {
        self.waiting.push_back(Sequence::new(job));
    }

    /// Whether a request fits in at all.
    pub fn takes(&self, prompt_tokens: u32, output: u32) -> bool {
        u64::from(prompt_tokens) + u64::from(output)
            <= self.cache.pool.usable() as u64 * u64::from(self.spec.block_tokens)
    }

    /// Stretches the following steps; 1.0 is normal.
    pub fn set_slowdown(&mut self, factor: f64) {
        self.slow = factor;
    }

    /// When [`Replica::step`] has something to do next; `None` while there is no work.
    pub fn next_wake(&self) -> Option<Duration> {
        match self.state {
            State::InFlight { ends, .. } => Some(ends),
            State::Idle { since } if !self.running.is_empty() => Some(since),
            State::Idle { since } => self.waiting.front().map(|first| since.max(first.job.arrived)),
        }
    }

    /// Does everything that is due at `now`. Time must not go back from call to call.
    pub fn step(&mut self, now: Duration, effects: &mut Effects) {
        while let Some(due) = self.next_wake().filter(|due| *due <= now) {
            match self.state {
                State::InFlight { ends, work } => {
                    self.land(ends, work, effects);
                    self.state = State::Idle { since: ends };
                }
                State::Idle { .. } => {
                    let Some(flight) = self.launch(due) else {
                        self.state = State::Idle { since: due };
                        return;
                    };
                    self.state = flight;
                }
            }
        }
    }

    /// Totals.
    pub fn counters(&self) -> Counters {
        Counters { evicted: self.cache.evictions, ..self.counters }
    }

    /// Current figures.
    pub fn gauges(&self) -> Gauges {
        let usable = self.cache.pool.usable().max(1) as f64;
        Gauges {
            running: self.running.len(),
            waiting: self.waiting.len(),
            room_tokens: self.cache.pool.free() as u64 * u64::from(self.spec.block_tokens),
            cached_blocks: self.cache.pool.filled() as u64,
            evicted_blocks: self.cache.evictions,
            kv_usage: (self.cache.pool.usable() - self.cache.pool.free()) as f64 / usable,
            occupied: self.cache.pool.filled() as f64 / usable,
        }
    }

    /// Requests that it has.
    pub fn in_flight(&self) -> usize {
        self.running.len() + self.waiting.len()
    }

    /// Every id in its prefix cache, with its copies.
    pub fn contents(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.cache.pool.contents()
    }

    /// The invariants of its pool; and once it is idle, that nothing is held any more.
    pub fn check(&self) -> bool {
        let idle = self.in_flight() == 0;
        self.cache.pool.check() && (!idle || self.cache.pool.free() == self.cache.pool.usable())
    }

    fn launch(&mut self, start: Duration) -> Option<State> {
        let mut plan = Plan { budget: self.spec.max_batched_tokens, work: 0, prefill_tokens: 0, decodes: 0 };
        let preempted = self.schedule_running(&mut plan);
        if !preempted {
            self.schedule_waiting(start, &mut plan);
        }
        if plan.work == 0 {
            return None;
        }
        let duration = self.spec.timing.step(&plan, self.slow);
        Some(State::InFlight { ends: start + duration, work: plan.work })
    }

    /// Continues the running sequences, oldest first; true if one had to give up its blocks.
    fn schedule_running(&mut self, plan: &mut Plan) -> bool {
        let mut preempted = false;
        self.cache.no_hit();
        while plan.budget > 0 {
            let Some(sequence) = self.running.get_mut(plan.work) else { break };
            let new_tokens = (sequence.len() - sequence.computed).min(plan.budget);
            let prefills = sequence.prefills();
            if self.cache.extend(sequence, new_tokens) {
                plan.add(new_tokens, prefills);
                continue;
            }
            // The newest running sequence makes room, possibly the one that asked.
            let Some(mut victim) = self.running.pop() else { break };
            self.cache.release(&mut victim);
            self.counters.preemptions += 1;
            self.waiting.push_front(victim);
            preempted = true;
        }
        preempted
    }

    /// Admits waiting sequences in order, as long as budget, seats and blocks last.
    fn schedule_waiting(&mut self, start: Duration, plan: &mut Plan) {
        while plan.budget > 0 && self.running.len() < self.spec.max_seqs {
            let attempt = (self.cache.pool.version(), plan.budget);
            let due = self.waiting.front().is_some_and(|first| {
                first.job.arrived <= start && first.refused != Some(attempt) && self.cache.pool.free() > 0
            });
            if !due {
                break;
            }
            let Some(mut sequence) = self.waiting.pop_front() else { break };
            let hit_tokens = self.cache.find_hit(&sequence);
            let new_tokens = (sequence.len() - hit_tokens).min(plan.budget);
            let prefills = sequence.prefills();
            if !self.cache.extend(&mut sequence, new_tokens) {
                sequence.refused = Some(attempt);
                self.waiting.push_front(sequence);
                break;
            }
            if sequence.hit.is_none() {
                sequence.hit = Some(hit_tokens);
                self.counters.queries += u64::from(sequence.job.prompt.tokens);
                self.counters.hits += u64::from(hit_tokens);
            }
            plan.add(new_tokens, prefills);
            self.running.push(sequence);
        }
    }

    fn land(&mut self, at: Duration, work: usize, effects: &mut Effects) {
        let (cache, counters) = (&mut self.cache, &mut self.counters);
        let mut position = 0;
        self.running.retain_mut(|sequence| {
            position += 1;
            if position > work || sequence.computed < sequence.len() {
                return true;
            }
            if sequence.generated == 0 {
                effects.firsts.push(First { id: sequence.job.id, at, cached: sequence.hit.unwrap_or(0) });
            }
            sequence.generated += 1;
            if sequence.generated < sequence.job.output {
                return true;
            }
            effects.lasts.push((sequence.job.id, at));
            cache.release(sequence);
            counters.finished += 1;
            false
        });
        let events = self.cache.take_events();
        if !events.is_empty() {
            effects.batches.push(Batch { events, ..Batch::default() });
        }
    }
}
