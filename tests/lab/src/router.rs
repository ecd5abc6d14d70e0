//! The router of a simulated fleet: the index and the ranking that the indexer runs, fed with the replicas' own events,
//! with what is known of load at that moment, and no more.

use std::sync::Arc;
use std::time::Duration;

use rand::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use warmpath_core::rank::{Candidate, Deciders, Demand, Landmark, Other, Unheard};
use warmpath_kv::event::{Batch, EngineHash, Event, Removed, Stored};
use warmpath_kv::index::Origin;
use warmpath_kv::{Hits, Index, IndexLimits, KeyHasher, Millis, Namespace, PromptKeys, StreamId, Trust};
use warmpath_standing::{
    EndpointMeter, FirstToken, Heard, Outliers, RankMeter, RecentErrors, Turnover, slownesses,
};

use crate::cache::{WORDS_PER_BLOCK, words};
use crate::prompt::Prompt;
use crate::regret::Regret;
use crate::replica::Gauges;
use crate::rule::{Rule, Surroundings};

/// How long blocks of a pick count as present without an event: the indexer's default.
const SPECULATIVE_MS: u64 = 15_000;
/// Endpoints that a decision names.
const CANDIDATES: usize = 3;
/// The indexer's defaults: when who fails is left out, and how long a new replica is young.
const OUTLIERS: Outliers = Outliers { failures: 5, eject_ms: 5000 };
const SLOW_START_MS: u64 = 10_000;
/// Speeds are compared this often.
const COMPARED_EVERY: Duration = Duration::from_secs(1);

const MODEL: &str = "lab";

/// What is known of one replica.
#[derive(Debug)]
struct Seat {
    name: String,
    usable: bool,
    queued_tokens: u64,
    waiting: u32,
    sequences: u32,
    last_cold: u64,
    sample: Option<Sample>,
    turnover: Turnover,
    errors: RecentErrors,
    meter: EndpointMeter,
    rank: RankMeter,
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
    /// Of a pick made here: the tokens that had to be computed until its first one, and when it was made.
    made: Option<(u64, Duration)>,
}

/// What a pick puts on a replica, as other routers are told it.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The replica.
    pub seat: usize,
    /// Tokens that it has to compute.
    pub queued_tokens: u64,
    /// Of the blocks that it will hold then.
    pub keys: Option<Arc<PromptKeys>>,
}

/// A decision.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// Replicas, best first.
    pub seats: Vec<usize>,
    /// Tokens that the first is expected to have.
    pub predicted: u32,
    /// What that means for the first; none where there is no replica.
    pub placed: Option<Placed>,
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
    /// It learns speeds, spares the young and leaves out who fails.
    learns: bool,
    compared_at: Duration,
    /// Of the routers there are.
    number: usize,
    others: Vec<Other>,
    unheard: Unheard,
}

// === impl Router ===

impl Router {
    /// A router for requests 0 to `requests` - 1, the one of this number among so many.
    pub fn new(
        rule: Rule,
        block_tokens: u32,
        requests: usize,
        seed: u64,
        learns: bool,
        (number, routers): (usize, usize),
    ) -> Self {
        let others = (0..routers).filter(|other| *other != number);
        let others = others.map(|other| Other { id: other as u32, picked_at_ms: None });
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
            learns,
            compared_at: Duration::ZERO,
            number,
            others: others.collect(),
            unheard: Unheard::default(),
        }
    }

    /// One more replica; they are numbered from 0.
    /// With `has_served`, it has stored a block before, so the size of its blocks is known. Otherwise its metrics tell it.
    pub fn join(&mut self, has_served: bool, now: Duration) {
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
        self.index.guess_block_size(stream, WORDS_PER_BLOCK);
        self.seats.push(Seat {
            name: format!("10.0.0.{}:80", self.seats.len() + 1),
            usable: true,
            queued_tokens: 0,
            waiting: 0,
            sequences: 0,
            last_cold: 0,
            sample: None,
            turnover: Turnover::default(),
            errors: RecentErrors::default(),
            meter: EndpointMeter::default(),
            rank: RankMeter::default(),
        });
        if let Some(seat) = self.seats.last() {
            seat.meter.begin(millis(now));
        }
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
            Arc::new(self.index.key_plan().keys(&namespace, &all))
        });
        if let Some(keys) = &keys {
            self.index.hits(keys, &mut self.hits);
        }
        let willing = self.willing(now);
        let oldest = willing.iter().map(|(_, seat)| self.ramp(seat, now)).fold(0.0, f64::max);
        let candidate = |(number, seat): &(usize, &Seat)| {
            let ramp = self.ramp(seat, now) / oldest;
            (*number, Candidate { ramp, ..self.candidate(*number, seat, needs_hits, now) })
        };
        let (numbers, mut candidates): (Vec<usize>, Vec<Candidate>) = willing.iter().map(candidate).unzip();
        let demand = Demand {
            prompt_tokens: prompt.tokens,
            further_tokens: 0,
            output_tokens: 0,
            tie_tokens: self.block_tokens,
        };
        let random = &mut self.random;
        let best = candidates.iter().map(|candidate| candidate.cached_tokens).max().unwrap_or(0);
        let held = best / self.block_tokens;
        self.regret.ask(&prompt.chain, held as usize, now);
        let key_behind = |tokens: u32| {
            keys.as_ref().and_then(|keys| keys.first_behind(tokens / self.block_tokens * WORDS_PER_BLOCK))
        };
        let unknown = key_behind(best).map(|key| Landmark { behind: best, key });
        let has = |block: Landmark| key_behind(block.behind) == Some(block.key);
        let deciders = Deciders::of(self.number as u32, self.others.iter().copied(), millis(now).0);
        let home = |unknown| self.unheard.home(deciders, millis(now).0, unknown, has);
        if let Some(home) = unknown.and_then(home) {
            let seats = numbers.iter().filter_map(|number| self.seats.get(*number));
            home.settle(prompt.tokens, seats.map(|seat| (seat.name.as_str(), 0)), &mut candidates);
        }
        let surroundings = Surroundings { regret: self.regret.share(now) };
        let lots = &mut || random.next_u64();
        let ranked = self.rule.rank(demand, &candidates, surroundings, self.turn, lots);
        self.turn += 1;
        let best = ranked.first();
        let predicted = best.and_then(|best| candidates.get(best.index)).map_or(0, |best| best.cached_tokens);
        let queued_tokens = best.map_or(0, |best| best.uncached_tokens);
        let seats: Vec<usize> =
            ranked.iter().take(CANDIDATES).filter_map(|ranked| numbers.get(ranked.index).copied()).collect();
        let placed = seats.first().map(|seat| Placed { seat: *seat, queued_tokens, keys });
        if let Some(placed) = &placed {
            self.take_pick(request, placed, now);
            self.unheard.note(millis(now).0, unknown);
            let queued =
                best.and_then(|best| candidates.get(best.index)).map_or(0, |best| best.queued_tokens);
            if let Some(Some(reservation)) = self.reservations.get_mut(request) {
                reservation.made = Some((queued + placed.queued_tokens, now));
            }
            if candidates.iter().all(|candidate| candidate.cached_tokens == 0)
                && let Some(place) = self.seats.get_mut(placed.seat)
            {
                place.last_cold = self.turn;
            }
        }
        Decision { seats, predicted, placed }
    }

    /// The router `by` picked.
    pub fn hear_of_pick(&mut self, by: usize, now: Duration) {
        for other in self.others.iter_mut().filter(|other| other.id == by as u32) {
            other.picked_at_ms = Some(millis(now).0);
        }
    }

    /// A pick of `at`, made here or elsewhere: its load counts, and its blocks are expected.
    pub fn take_pick(&mut self, request: usize, placed: &Placed, at: Duration) {
        // Of an earlier try, whose end is not heard of yet.
        self.released(request);
        self.reserve(request, placed.seat, placed.queued_tokens);
        if let Some(seat) = self.seats.get(placed.seat) {
            seat.meter.hear(Heard::Picked, OUTLIERS, millis(at));
        }
        if let Some(keys) = &placed.keys {
            self.index.speculate(stream(placed.seat), keys, millis(at).plus(SPECULATIVE_MS));
        }
    }

    /// The first byte of an answer came at `at`, as is heard now. What that says of the replica's speed, if the request was
    /// placed here.
    pub fn started(&mut self, request: usize, at: Duration, now: Duration) -> Option<(usize, FirstToken)> {
        let reservation = self.wait_is_over(request)?;
        let seat = self.seats.get_mut(reservation.seat)?;
        seat.meter.hear(Heard::Answered, OUTLIERS, millis(now));
        let (work_tokens, made_at) = reservation.made?;
        let ttft_us = u64::try_from(at.saturating_sub(made_at).as_micros()).unwrap_or(u64::MAX);
        let token = FirstToken { work_tokens, ttft_us, by: None };
        seat.rank.note_first_token(token, millis(now));
        Some((reservation.seat, token))
    }

    /// A first token that another router placed.
    pub fn learn(&self, seat: usize, token: FirstToken, now: Duration) {
        if let Some(seat) = self.seats.get(seat) {
            seat.rank.note_first_token(token, millis(now));
        }
    }

    /// It does not wait any more. None: it did not.
    fn wait_is_over(&mut self, request: usize) -> Option<Reservation> {
        let reservation = self.reservations.get_mut(request)?.as_mut()?;
        if std::mem::replace(&mut reservation.has_started, true) {
            return None;
        }
        let reservation = *reservation;
        if let Some(seat) = self.seats.get_mut(reservation.seat) {
            seat.queued_tokens -= reservation.queued_tokens;
            seat.waiting -= 1;
        }
        Some(reservation)
    }

    /// A request is over.
    pub fn released(&mut self, request: usize) {
        self.wait_is_over(request);
        let Some(reservation) = self.reservations.get_mut(request).and_then(Option::take) else { return };
        if let Some(seat) = self.seats.get_mut(reservation.seat) {
            seat.sequences -= 1;
        }
    }

    /// A replica answered with an error.
    pub fn failed(&mut self, seat: usize, now: Duration) {
        let Some(seat) = self.seats.get(seat) else { return };
        seat.errors.note(millis(now));
        seat.meter.hear(Heard::Failed, OUTLIERS, millis(now));
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
        seat.turnover.note(gauges.cached_blocks, gauges.evicted_blocks, millis(now));
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
        if self.learns && now >= self.compared_at + COMPARED_EVERY {
            self.compared_at = now;
            let fellows: Vec<_> = self.seats.iter().map(|seat| (seat.rank.pace(millis(now)), 1.0)).collect();
            for (seat, slowness) in self.seats.iter().zip(slownesses(&fellows)) {
                seat.rank.set_slowness(slowness);
            }
        }
    }

    /// Whether nothing is counted any more.
    pub fn is_idle(&self) -> bool {
        self.seats.iter().all(|seat| seat.queued_tokens == 0 && seat.sequences == 0)
            && self.reservations.iter().all(Option::is_none)
    }

    /// Replicas that may get something new; where all fail, all that stay.
    fn willing(&self, now: Duration) -> Vec<(usize, &Seat)> {
        let staying = || self.seats.iter().enumerate().filter(|(_, seat)| seat.usable);
        let trusted = staying().filter(|(_, seat)| !self.learns || seat.meter.admits(millis(now)));
        let trusted: Vec<_> = trusted.collect();
        if trusted.is_empty() { staying().collect() } else { trusted }
    }

    fn ramp(&self, seat: &Seat, now: Duration) -> f64 {
        if self.learns { seat.meter.ramp(SLOW_START_MS, millis(now)) } else { 1.0 }
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
            penalty: seat.errors.penalty(millis(now)),
            slowness: seat.rank.slowness(),
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
            *place = Some(Reservation { seat, queued_tokens, has_started: false, made: None });
        }
    }
}

fn stream(seat: usize) -> StreamId {
    StreamId(u32::try_from(seat).unwrap_or(u32::MAX))
}

fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
