//! The router of a simulated fleet: the index and the ranking that the indexer runs, fed with the replicas' own events,
//! with what is known of load at that moment, and no more.

use std::time::Duration;

use rand::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use warmpath_core::rank::{Candidate, Demand};
use warmpath_kv::event::{Batch, EngineHash, Event, Removed, Stored};
use warmpath_kv::index::Origin;
use warmpath_kv::{Hits, Index, IndexLimits, KeyHasher, Millis, Namespace, StreamId, Trust};

use crate::cache::{WORDS_PER_BLOCK, words};
use crate::prompt::Prompt;
use crate::regret::Regret;
use crate::replica::Gauges;
use crate::rule::{Rule, Surroundings};
use crate::turnover::Turnover;

/// How long blocks of a pick count as present without an event: the indexer's default.
const SPECULATIVE_MS: u64 = 15_000;
/// Endpoints that a decision names.
const CANDIDATES: usize = 3;
/// What an error costs, how far errors add up, and when they have lost half of it: the indexer's constants.
const TOKENS_PER_ERROR: f64 = 2048.0;
const ERRORS_MAX: f64 = 16.0;
const ERRORS_HALF_LIFE: Duration = Duration::from_secs(10);

const MODEL: &str = "lab";

/// What is known of one replica.
#[derive(Clone, Debug)]
struct Seat {
    usable: bool,
    queued_tokens: u64,
    waiting: u32,
    sequences: u32,
    last_cold: u64,
    sample: Option<Sample>,
    turnover: Turnover,
    errors: f64,
    errors_at: Duration,
}

/// What a scrape told.
#[derive(Clone, Copy, Debug)]
struct Sample {
    pressure: f64,
    kv_usage: f64,
    room_tokens: u64,
    foreign: u32,
}

/// What a pick put on a replica.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    seat: usize,
    queued_tokens: u64,
    has_started: bool,
}

/// A decision.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Replicas, best first.
    pub seats: Vec<usize>,
    /// Tokens that the first is expected to have.
    pub predicted: u32,
}

/// The router.
#[derive(Debug)]
pub struct Router {
    rule: Rule,
    block_tokens: u32,
    index: Index,
    hits: Hits,
    seats: Vec<Seat>,
    reservations: Vec<Option<Reservation>>,
    regret: Regret,
    turn: u64,
    random: Pcg64Mcg,
}

// === impl Router ===

impl Router {
    /// A router for requests 0 to `requests` - 1.
    pub fn new(rule: Rule, block_tokens: u32, requests: usize, seed: u64) -> Self {
        Self {
            rule,
            block_tokens,
            index: Index::new(KeyHasher::new([7; 16]), IndexLimits::default()),
            hits: Hits::default(),
            seats: Vec::new(),
            reservations: vec![None; requests],
            regret: Regret::default(),
            turn: 0,
            random: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    /// One more replica; they are numbered from 0.
    /// With `has_served`, it has stored a block before, so the size of its blocks is known.
    pub fn join(&mut self, has_served: bool) {
        let stream = stream(self.seats.len());
        self.index.add_stream(stream, MODEL);
        self.index.set_trust(stream, Trust::Live);
        if has_served {
            let first = EngineHash(0);
            let stored = Stored {
                hashes: vec![first],
                tokens: words(0).to_vec(),
                block_size: WORDS_PER_BLOCK,
                ..Stored::default()
            };
            let removed = Removed { hashes: vec![first], ..Removed::default() };
            let events = vec![Event::Stored(Box::new(stored)), Event::Removed(removed)];
            self.index.apply(stream, &Batch { events, ..Batch::default() }, Origin::Published);
        }
        self.seats.push(Seat {
            usable: true,
            queued_tokens: 0,
            waiting: 0,
            sequences: 0,
            last_cold: 0,
            sample: None,
            turnover: Turnover::default(),
            errors: 0.0,
            errors_at: Duration::ZERO,
        });
    }

    /// Nothing new goes to this replica.
    pub fn drain(&mut self, seat: usize) {
        if let Some(seat) = self.seats.get_mut(seat) {
            seat.usable = false;
        }
    }

    /// Ranks the replicas for a request and reserves on the first.
    pub fn pick(&mut self, request: usize, prompt: &Prompt, now: Duration) -> Decision {
        let needs_hits = self.rule.needs_hits();
        let keys = needs_hits.then(|| {
            let mut all: Vec<u32> = prompt.chain.iter().flat_map(|id| words(*id)).collect();
            // A block that is not whole is one token, so that all whole ones before it can be hits.
            all.extend((!prompt.tokens.is_multiple_of(self.block_tokens)).then_some(0));
            let namespace = Namespace { model: MODEL, lora: None, salt: None };
            self.index.key_plan().keys(&namespace, &all)
        });
        if let Some(keys) = &keys {
            self.index.hits(keys, &mut self.hits);
        }
        let (numbers, candidates): (Vec<usize>, Vec<Candidate>) = self
            .seats
            .iter()
            .enumerate()
            .filter(|(_, seat)| seat.usable)
            .map(|(number, seat)| (number, self.candidate(number, seat, needs_hits, now)))
            .unzip();
        let demand = Demand {
            prompt_tokens: prompt.tokens,
            further_tokens: 0,
            output_tokens: 0,
            tie_tokens: self.block_tokens,
        };
        let random = &mut self.random;
        let best = candidates.iter().map(|candidate| candidate.cached_tokens).max().unwrap_or(0);
        self.regret.ask(&prompt.chain, (best / self.block_tokens) as usize, now);
        let surroundings = Surroundings { regret: self.regret.share(now) };
        let mut lots = || random.next_u64();
        let ranked = self.rule.rank(demand, &candidates, surroundings, self.turn, &mut lots);
        self.turn += 1;
        let best = ranked.first();
        let predicted = best.and_then(|best| candidates.get(best.index)).map_or(0, |best| best.cached_tokens);
        let queued_tokens = best.map_or(0, |best| best.uncached_tokens);
        let seats: Vec<usize> =
            ranked.iter().take(CANDIDATES).filter_map(|ranked| numbers.get(ranked.index).copied()).collect();
        if let Some(seat) = seats.first().copied() {
            self.reserve(request, seat, queued_tokens);
            if candidates.iter().all(|candidate| candidate.cached_tokens == 0)
                && let Some(place) = self.seats.get_mut(seat)
            {
                place.last_cold = self.turn;
            }
            if let Some(keys) = &keys {
                self.index.speculate(stream(seat), keys, millis(now).plus(SPECULATIVE_MS));
            }
        }
        Decision { seats, predicted }
    }

    /// The first byte of an answer has come.
    pub fn started(&mut self, request: usize) {
        let Some(Some(reservation)) = self.reservations.get_mut(request) else { return };
        if std::mem::replace(&mut reservation.has_started, true) {
            return;
        }
        if let Some(seat) = self.seats.get_mut(reservation.seat) {
            seat.queued_tokens -= reservation.queued_tokens;
            seat.waiting -= 1;
        }
    }

    /// A request is over.
    pub fn released(&mut self, request: usize) {
        self.started(request);
        let Some(reservation) = self.reservations.get_mut(request).and_then(Option::take) else { return };
        if let Some(seat) = self.seats.get_mut(reservation.seat) {
            seat.sequences -= 1;
        }
    }

    /// A replica answered with an error.
    pub fn failed(&mut self, seat: usize, now: Duration) {
        let Some(seat) = self.seats.get_mut(seat) else { return };
        seat.errors = (seat.errors_now(now) + 1.0).min(ERRORS_MAX);
        seat.errors_at = now;
    }

    /// What a replica did to its cache.
    pub fn apply(&mut self, seat: usize, batch: &Batch, now: Duration) {
        if self.rule.needs_hits() {
            self.regret.apply(batch, now);
            self.index.apply(stream(seat), batch, Origin::Published);
        }
    }

    /// What a replica's metrics say.
    /// With `fill_counts`, a cache that fills up presses as far as it is full, not only what leaves it.
    pub fn scraped(&mut self, seat: usize, gauges: Gauges, fill_counts: bool, now: Duration) {
        let Some(seat) = self.seats.get_mut(seat) else { return };
        let engine = (gauges.running + gauges.waiting) as u32;
        seat.turnover.note(gauges.cached_blocks, gauges.evicted_blocks, now);
        let leaving = seat.turnover.evicted_share().unwrap_or(gauges.occupied);
        let leaving = if fill_counts { leaving.max(gauges.occupied) } else { leaving };
        seat.sample = Some(Sample {
            kv_usage: gauges.kv_usage,
            room_tokens: gauges.room_tokens,
            pressure: gauges.kv_usage.max(leaving).min(1.0),
            foreign: engine.saturating_sub(seat.sequences),
        });
    }

    /// Time goes on.
    pub fn tick(&mut self, now: Duration) {
        self.index.expire(millis(now));
    }

    /// Whether nothing is counted any more.
    pub fn is_idle(&self) -> bool {
        self.seats.iter().all(|seat| seat.queued_tokens == 0 && seat.sequences == 0)
            && self.reservations.iter().all(Option::is_none)
    }

    fn candidate(&self, number: usize, seat: &Seat, needs_hits: bool, now: Duration) -> Candidate {
        let cached = if needs_hits { self.hits.tokens(stream(number)) } else { 0 };
        Candidate {
            cached_tokens: cached / WORDS_PER_BLOCK * self.block_tokens,
            queued_tokens: seat.queued_tokens,
            waiting_sequences: seat.waiting,
            active_sequences: seat.sequences + seat.sample.map_or(0, |sample| sample.foreign),
            kv_usage: seat.sample.map_or(0.0, |sample| sample.kv_usage),
            room_tokens: seat.sample.map(|sample| sample.room_tokens),
            pressure: seat.sample.map_or(0.0, |sample| sample.pressure),
            penalty: seat.errors_now(now) * TOKENS_PER_ERROR,
            last_cold: seat.last_cold,
            ..Candidate::default()
        }
    }

    fn reserve(&mut self, request: usize, seat: usize, queued_tokens: u64) {
        if let Some(place) = self.seats.get_mut(seat) {
            place.queued_tokens += queued_tokens;
            place.waiting += 1;
            place.sequences += 1;
        }
        if let Some(place) = self.reservations.get_mut(request) {
            *place = Some(Reservation { seat, queued_tokens, has_started: false });
        }
    }
}

// === impl Seat ===

impl Seat {
    fn errors_now(&self, now: Duration) -> f64 {
        let age = now.saturating_sub(self.errors_at).as_secs_f64();
        self.errors * (-age / ERRORS_HALF_LIFE.as_secs_f64()).exp2()
    }
}

fn stream(seat: usize) -> StreamId {
    StreamId(u32::try_from(seat).unwrap_or(u32::MAX))
}

fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
