//! One load under one rule in virtual time, from the first request to the last answer.
//!
//! ```text
//! load ─▶ ready ─▶ (concurrency) ─▶ Router::pick ─▶ Replica ─▶ first token ─▶ last token
//!                        ▲                             │ error
//!                        └────── retried by client ────┘
//! ```
//!
//! Events are handled in order of time, and in the order in which they were made where times are equal. All randomness
//! comes from seeds, so a run is a function of its arguments.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use crate::deciders::{Deciders, Sharing};
use crate::load::{Incident, Load, Start};
use crate::outcome::{Outcome, Run, Sample};
use crate::replica::{Effects, Job, Replica};

use crate::rule::Rule;

/// What is not in the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Replicas have served something before, so that the size of their blocks is known from events, not from metrics.
    pub have_served: bool,
    /// A cache that fills up presses as far as it is full, also while nothing has to leave it yet.
    pub fill_counts: bool,
    /// Of the router's choices among equals.
    pub seed: u64,
    /// First bytes and ends reach the router with the next multiple of this: the filter's interval of reports.
    pub report_every: Duration,
    /// The router reads metrics this often, and figures over time are taken this often.
    pub scrape_every: Duration,
    /// What a failing replica takes to say so.
    pub error_after: Duration,
    /// A client waits so long before it tries again, and twice as long the next time.
    pub retry_after: Duration,
    /// Tries of a request.
    pub tries: u32,
    /// Requests of a closed loop that begin at once come so far apart: what a proxy takes for one.
    pub apart: Duration,
    /// How many decide, and what they know of each other.
    pub sharing: Sharing,
    /// Routers learn replicas' speeds, spare the young and leave out those that fail, as the indexer does.
    pub learns: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Incident(usize),
    Wake(usize),
    Refused { request: usize, seat: usize },
    Ready(usize),
    Reports,
    Scrape,
}

#[derive(Clone, Copy, Debug)]
enum Report {
    Started(usize, Duration),
    Released(usize),
    Failed(usize),
}

struct Node {
    replica: Replica,
    failing: bool,
    wakes_at: Option<Duration>,
    sent: usize,
}

/// A run in progress.
struct Simulation<'a> {
    load: &'a Load,
    settings: Settings,
    router: Deciders,
    nodes: Vec<Node>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    made: u64,
    ready: VecDeque<usize>,
    in_flight: usize,
    open: usize,
    followers: Vec<Vec<usize>>,
    outcomes: Vec<Outcome>,
    reports: Vec<Report>,
    samples: Vec<Sample>,
    effects: Effects,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            have_served: true,
            fill_counts: true,
            seed: 1,
            report_every: Duration::from_millis(50),
            scrape_every: Duration::from_millis(500),
            error_after: Duration::from_millis(5),
            retry_after: Duration::from_millis(500),
            tries: 3,
            apart: Duration::ZERO,
            sharing: Sharing::ONE,
            learns: false,
        }
    }
}

/// Runs a load to its end.
pub fn run(load: &Load, rule: &Rule, settings: Settings) -> Run {
    let mut simulation = Simulation::new(load, rule, settings);
    simulation.begin();
    while let Some(Reverse((now, _, event))) = simulation.events.pop() {
        simulation.router.hear(now);
        simulation.handle(now, event);
        if simulation.open == 0 && simulation.reports.is_empty() {
            break;
        }
    }
    simulation.end(rule)
}

// === impl Simulation ===

impl<'a> Simulation<'a> {
    fn new(load: &'a Load, rule: &Rule, settings: Settings) -> Self {
        let count = load.requests.len();
        Self {
            load,
            settings,
            router: Deciders::new(rule, load.replica.block_tokens, count, settings.seed, &settings),
            nodes: Vec::new(),
            events: BinaryHeap::new(),
            made: 0,
            ready: VecDeque::new(),
            in_flight: 0,
            open: count,
            followers: vec![Vec::new(); count],
            outcomes: vec![Outcome::default(); count],
            reports: Vec::new(),
            samples: Vec::new(),
            effects: Effects::default(),
        }
    }

    fn begin(&mut self) {
        (0..self.load.replicas).for_each(|_| self.join(Duration::ZERO));
        for (number, (at, _)) in self.load.incidents.iter().enumerate() {
            self.at(*at, Event::Incident(number));
        }
        for (number, request) in self.load.requests.iter().enumerate() {
            match request.start {
                Start::At(at) => {
                    let before = self.load.concurrency.unwrap_or(0).min(number);
                    let apart = self.settings.apart * u32::try_from(before).unwrap_or(u32::MAX);
                    self.at(at + apart, Event::Ready(number));
                }
                Start::After { request, .. } => {
                    if let Some(followers) = self.followers.get_mut(request) {
                        followers.push(number);
                    }
                }
            }
        }
        self.at(self.settings.scrape_every, Event::Scrape);
    }

    fn join(&mut self, now: Duration) {
        self.router.join(self.settings.have_served, now);
        let replica = Replica::new(self.load.replica.clone(), now);
        self.nodes.push(Node { replica, failing: false, wakes_at: None, sent: 0 });
    }

    fn at(&mut self, time: Duration, event: Event) {
        self.made += 1;
        self.events.push(Reverse((time, self.made, event)));
    }

    fn handle(&mut self, now: Duration, event: Event) {
        match event {
            Event::Incident(number) => self.incident(number, now),
            Event::Ready(request) => {
                self.ready.push_back(request);
                self.send(now);
            }
            Event::Wake(seat) => self.wake(seat, now),
            Event::Refused { request, seat } => self.refused(request, seat, now),
            Event::Reports => self.deliver(now),
            Event::Scrape => self.scrape(now),
        }
    }

    fn incident(&mut self, number: usize, now: Duration) {
        let Some((_, incident)) = self.load.incidents.get(number) else { return };
        match *incident {
            Incident::Join => self.join(now),
            Incident::Drain(seat) => self.router.drain(seat),
            Incident::Slow(seat, factor) => {
                if let Some(node) = self.nodes.get_mut(seat) {
                    node.replica.set_slowdown(factor);
                }
            }
            Incident::Failing(seat, failing) => {
                if let Some(node) = self.nodes.get_mut(seat) {
                    node.failing = failing;
                }
            }
        }
    }

    /// Sends what is ready, as far as the load's concurrency lets it.
    fn send(&mut self, now: Duration) {
        while self.load.concurrency.is_none_or(|most| self.in_flight < most) {
            let Some(number) = self.ready.pop_front() else { return };
            self.in_flight += 1;
            self.send_one(number, now);
        }
    }

    fn send_one(&mut self, number: usize, now: Duration) {
        let (Some(request), Some(outcome)) = (self.load.requests.get(number), self.outcomes.get_mut(number))
        else {
            return;
        };
        let decision = self.router.pick(number, &request.prompt, now);
        outcome.sent.get_or_insert(now);
        outcome.tries += 1;
        outcome.prompt_tokens = request.prompt.tokens;
        outcome.predicted = decision.predicted;
        let Some(seat) = decision.seats.first().copied() else { return };
        outcome.seat = seat;
        let Some(node) = self.nodes.get_mut(seat) else { return };
        node.sent += 1;
        if node.failing || !node.replica.takes(request.prompt.tokens, request.output) {
            self.at(now + self.settings.error_after, Event::Refused { request: number, seat });
            return;
        }
        let (prompt, output) = (request.prompt.clone(), request.output);
        node.replica.submit(Job { id: number, arrived: now, prompt, output });
        self.schedule(seat);
    }

    fn refused(&mut self, number: usize, seat: usize, now: Duration) {
        self.report(Report::Released(number), now);
        self.report(Report::Failed(seat), now);
        let Some(outcome) = self.outcomes.get_mut(number) else { return };
        if outcome.tries < self.settings.tries {
            let wait = self.settings.retry_after * 2u32.pow(outcome.tries - 1);
            self.in_flight -= 1;
            self.at(now + wait, Event::Ready(number));
        } else {
            outcome.failed = true;
            self.over(number, now);
        }
        self.send(now);
    }

    fn over(&mut self, number: usize, now: Duration) {
        self.open -= 1;
        self.in_flight -= 1;
        for follower in self.followers.get_mut(number).map(std::mem::take).unwrap_or_default() {
            let pause = match self.load.requests.get(follower).map(|request| request.start) {
                Some(Start::After { pause, .. }) => pause,
                _ => Duration::ZERO,
            };
            self.at(now + pause, Event::Ready(follower));
        }
    }

    fn schedule(&mut self, seat: usize) {
        let Some(node) = self.nodes.get_mut(seat) else { return };
        let wake = node.replica.next_wake();
        let is_new = wake.is_some_and(|wake| node.wakes_at.is_none_or(|at| wake < at));
        if let (Some(wake), true) = (wake, is_new) {
            node.wakes_at = Some(wake);
            self.at(wake, Event::Wake(seat));
        }
    }

    fn wake(&mut self, seat: usize, now: Duration) {
        let Some(node) = self.nodes.get_mut(seat) else { return };
        if node.wakes_at != Some(now) {
            return;
        }
        node.wakes_at = None;
        let mut effects = std::mem::take(&mut self.effects);
        node.replica.step(now, &mut effects);
        self.schedule(seat);
        for batch in effects.batches.drain(..) {
            self.router.apply(seat, &batch, now);
        }
        for first in effects.firsts.drain(..) {
            if let Some(outcome) = self.outcomes.get_mut(first.id) {
                outcome.first = Some(first.at);
                outcome.cached = first.cached;
            }
            self.report(Report::Started(first.id, first.at), now);
        }
        for (number, at) in effects.lasts.drain(..) {
            if let Some(outcome) = self.outcomes.get_mut(number) {
                outcome.last = Some(at);
            }
            self.report(Report::Released(number), now);
            self.over(number, now);
        }
        self.effects = effects;
        self.send(now);
    }

    fn report(&mut self, report: Report, now: Duration) {
        if self.reports.is_empty() {
            let every = self.settings.report_every.as_nanos().max(1);
            let next = (now.as_nanos() / every + 1) * every;
            self.at(Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX)), Event::Reports);
        }
        self.reports.push(report);
    }

    fn deliver(&mut self, now: Duration) {
        for report in std::mem::take(&mut self.reports) {
            match report {
                Report::Started(request, at) => self.router.started(request, at, now),
                Report::Released(request) => self.router.released(request, now),
                Report::Failed(seat) => self.router.failed(seat, now),
            }
        }
    }

    fn scrape(&mut self, now: Duration) {
        let mut in_flight = Vec::with_capacity(self.nodes.len());
        for (seat, node) in self.nodes.iter().enumerate() {
            self.router.scraped(seat, node.replica.gauges(), self.settings.fill_counts, now);
            in_flight.push(node.replica.in_flight());
        }
        let usage = self.nodes.iter().map(|node| node.replica.gauges().kv_usage);
        let waiting = self.nodes.iter().map(|node| node.replica.gauges().waiting).sum();
        let kv_usage = usage.sum::<f64>() / self.nodes.len().max(1) as f64;
        self.samples.push(Sample { at: now, in_flight, kv_usage, waiting });
        self.router.tick(now);
        self.at(now + self.settings.scrape_every, Event::Scrape);
    }

    fn end(mut self, rule: &Rule) -> Run {
        let counters = self.nodes.iter().map(|node| node.replica.counters()).collect();
        Run {
            load: self.load.name.to_owned(),
            policy: rule.name.clone(),
            first_wave: self.load.first_wave,
            outcomes: self.outcomes,
            outputs: self.load.requests.iter().map(|request| request.output).collect(),
            samples: self.samples,
            counters,
            sent: self.nodes.iter().map(|node| node.sent).collect(),
            is_consistent: self.open == 0
                && self.router.are_idle()
                && self.nodes.iter().all(|node| node.replica.check()),
        }
    }
}
