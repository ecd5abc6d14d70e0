//! One router or several that tell each other what they do, some time later: as many indexers are.
//!
//! A request is decided by one of them, drawn by lot, and each report of it reaches another one, drawn too. Who decided
//! or was told tells the others at once, and they hear it after a delay; the maker of a decision repeats what it hears of
//! it, so that whoever heard of an end before its beginning hears of the end again.

use std::collections::VecDeque;
use std::time::Duration;

use rand::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use warmpath_kv::event::Batch;
use warmpath_standing::FirstToken;

use crate::prompt::Prompt;
use crate::replica::Gauges;
use crate::router::{Decision, Placed, Router};
use crate::rule::Rule;
use crate::simulation::Settings;

/// How many decide, and how they share what they know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Deciders.
    pub deciders: usize,
    /// From a pick or a report at one of them until the others know it.
    pub delay: Duration,
    /// They tell the blocks, too, that their picks will bring into caches: those whose keys are made with one secret.
    pub tells_blocks: bool,
}

/// All that decide.
#[derive(Debug)]
pub struct Deciders {
    routers: Vec<Router>,
    sharing: Sharing,
    lots: Pcg64Mcg,
    /// By the time at which they are heard.
    told: VecDeque<(Duration, Told)>,
}

#[derive(Debug)]
struct Told {
    by: usize,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Placed { by: usize, request: usize, placed: Placed, at: Duration },
    Started { request: usize, at: Duration },
    Released(usize),
    Failed { seat: usize, at: Duration },
    FirstToken { seat: usize, token: FirstToken },
}

// === impl Sharing ===

impl Sharing {
    /// One that knows everything at once.
    pub const ONE: Self = Self { deciders: 1, delay: Duration::ZERO, tells_blocks: true };
}

// === impl Deciders ===

impl Deciders {
    /// For requests 0 to `requests` - 1.
    pub fn new(rule: &Rule, block_tokens: u32, requests: usize, seed: u64, settings: &Settings) -> Self {
        let Settings { sharing, learns, .. } = *settings;
        let deciders = sharing.deciders.max(1);
        let router = |number| {
            let seed = seed + ((number as u64) << 32);
            Router::new(rule.clone(), block_tokens, requests, seed, learns, (number, deciders))
        };
        Self {
            routers: (0..deciders).map(router).collect(),
            sharing,
            lots: Pcg64Mcg::seed_from_u64(!seed),
            told: VecDeque::new(),
        }
    }

    /// One more replica; they are numbered from 0. With `has_served` its blocks' size is known from its events.
    pub fn join(&mut self, has_served: bool, now: Duration) {
        self.routers.iter_mut().for_each(|router| router.join(has_served, now));
    }

    /// Nothing new goes to this replica.
    pub fn drain(&mut self, seat: usize) {
        self.routers.iter_mut().for_each(|router| router.drain(seat));
    }

    /// Time has come so far: what was told until then is heard.
    pub fn hear(&mut self, now: Duration) {
        while self.told.front().is_some_and(|(at, _)| *at <= now) {
            let Some((at, told)) = self.told.pop_front() else { return };
            for number in (0..self.routers.len()).filter(|number| *number != told.by) {
                self.hear_alone(number, &told.what, at);
            }
        }
    }

    /// One of them ranks the replicas for a request and reserves on the first.
    pub fn pick(&mut self, request: usize, prompt: &Prompt, now: Duration) -> Decision {
        let by = self.draw();
        let Some(router) = self.routers.get_mut(by) else { return Decision::default() };
        let decision = router.pick(request, prompt, now);
        if let Some(placed) = &decision.placed {
            let keys = placed.keys.clone().filter(|_| self.sharing.tells_blocks);
            let placed = Placed { keys, ..*placed };
            self.tell(by, What::Placed { by, request, placed, at: now }, now);
        }
        decision
    }

    /// The first byte of an answer came at `at`, as one of them is told now.
    pub fn started(&mut self, request: usize, at: Duration, now: Duration) {
        self.report(&What::Started { request, at }, now);
    }

    /// A request is over, as one of them is told.
    pub fn released(&mut self, request: usize, now: Duration) {
        self.report(&What::Released(request), now);
    }

    /// A replica answered with an error, as one of them is told.
    pub fn failed(&mut self, seat: usize, now: Duration) {
        let by = self.draw();
        let failed = What::Failed { seat, at: now };
        self.hear_alone(by, &failed, now);
        self.tell(by, failed, now);
    }

    /// What a replica did to its cache, as all of them hear from itself.
    pub fn apply(&mut self, seat: usize, batch: &Batch, now: Duration) {
        self.routers.iter_mut().for_each(|router| router.apply(seat, batch, now));
    }

    /// What a replica's metrics say, as all of them read.
    pub fn scraped(&mut self, seat: usize, gauges: Gauges, fill_counts: bool, now: Duration) {
        self.routers.iter_mut().for_each(|router| router.scraped(seat, gauges, fill_counts, now));
    }

    /// Time goes on.
    pub fn tick(&mut self, now: Duration) {
        self.routers.iter_mut().for_each(|router| router.tick(now));
    }

    /// Whether nothing is counted any more, once all is heard.
    pub fn are_idle(&mut self) -> bool {
        self.hear(Duration::MAX);
        self.routers.iter().all(Router::is_idle)
    }

    fn report(&mut self, what: &What, now: Duration) {
        let by = self.draw();
        self.hear_alone(by, what, now);
        self.tell(by, what.clone(), now);
        // By the maker, to all but itself; it knows already.
        self.tell(usize::MAX, what.clone(), now + self.sharing.delay);
    }

    /// One of them hears something; what it makes of it, it tells the others.
    fn hear_alone(&mut self, number: usize, what: &What, now: Duration) {
        let Some(router) = self.routers.get_mut(number) else { return };
        if let Some((seat, token)) = router.hear(what, now) {
            self.tell(number, What::FirstToken { seat, token }, now);
        }
    }

    fn tell(&mut self, by: usize, what: What, now: Duration) {
        if self.routers.len() > 1 {
            let heard_at = now + self.sharing.delay;
            let place = self.told.partition_point(|(at, _)| *at <= heard_at);
            self.told.insert(place, (heard_at, Told { by, what }));
        }
    }

    /// Any of them, each as likely; of one, without a lot.
    fn draw(&mut self) -> usize {
        let count = self.routers.len() as u64;
        if count > 1 { (self.lots.next_u64() % count) as usize } else { 0 }
    }
}

// === impl Router ===

impl Router {
    /// Returns what was seen of a replica's speed.
    fn hear(&mut self, what: &What, now: Duration) -> Option<(usize, FirstToken)> {
        match what {
            What::Placed { by, request, placed, at } => {
                self.hear_of_pick(*by, now);
                self.take_pick(*request, placed, *at);
            }
            What::Started { request, at } => return self.started(*request, *at, now),
            What::Released(request) => self.released(*request),
            What::Failed { seat, at } => self.failed(*seat, *at),
            What::FirstToken { seat, token } => self.learn(*seat, *token, now),
        }
        None
    }
}
