//! Asks every engine for its metrics, on a beat. One that does not answer keeps no other from being asked.
//!
//! In: the current set. Out: a [`Sample`] per rank in its gauge, a [`Contact`] per endpoint to the fleet, and the size of
//! an engine's blocks as a guess, until its events tell it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use warmpath_kv::StreamId;

use super::metrics::{ByResult, FleetMetrics};
use super::{Contact, Endpoint, EngineFigures, Observation, Rota, Sample, View, parse_exposition};
use crate::clock::Clock;
use crate::config::Scrape;
use crate::http::{AskError, EngineClient};

/// Questions under way at the same time, each with a connection: those of a fleet of hundreds. Where more engines hang, all
/// get their turns.
const ASKED_MAX: usize = 256;
/// Largest exposition read, in bytes; real ones have some hundred kilobytes.
const EXPOSITION_MAX: usize = 8 << 20;

/// Reads every engine's load.
pub struct Scraper {
    config: Scrape,
    clock: Clock,
    view: Arc<View>,
    own: OwnCountsOf,
    guess: GuessOf,
    sleeps: Sleeps,
    metrics: FleetMetrics,
    client: EngineClient,
}

/// What we know of a place ourselves, to set the engine's figures against.
#[derive(Clone, Copy, Debug)]
pub struct OwnCounts {
    /// Reserved there.
    pub sequences: u64,
    /// Those of them that have not reached the first token.
    pub waiting: u64,
    /// Distinct blocks that its events told of.
    pub held_blocks: usize,
    /// Blocks that its engine evicted since its stream began.
    pub evicted_blocks: u64,
    /// Tokens per block, where its events have told.
    pub block_tokens: Option<u32>,
    /// Its events can be believed, so their counts can.
    pub is_followed: bool,
}

/// Tells the counts of a place.
pub type OwnCountsOf = Box<dyn Fn(StreamId) -> OwnCounts + Send + Sync>;

/// Takes a guess of a place's tokens per block, where its events have not told yet.
pub type GuessOf = Box<dyn Fn(StreamId, u32) + Send + Sync>;

/// Is told of a place whose engine sleeps, although its events say that it holds blocks.
pub type Sleeps = Box<dyn Fn(StreamId) + Send + Sync>;

impl Scraper {
    pub fn new(
        config: Scrape,
        clock: Clock,
        view: Arc<View>,
        (own, guess): (OwnCountsOf, GuessOf),
        sleeps: Sleeps,
        metrics: FleetMetrics,
    ) -> Self {
        let client = EngineClient::new(Duration::from_millis(config.timeout_ms));
        Self { config, clock, view, own, guess, sleeps, metrics, client }
    }

    /// Runs until `stop`.
    pub async fn run(self, observations: mpsc::Sender<Observation>, stop: CancellationToken) {
        let mut ticks = interval(Duration::from_millis(self.config.interval_ms));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut asked, mut rota) = (FuturesUnordered::new(), Rota::new(ASKED_MAX));
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(address) = asked.next() => rota.end(address),
                _ = ticks.tick() => {
                    for endpoint in rota.begin(&self.view.current().endpoints, |_| true) {
                        asked.push(self.ask(endpoint, &observations));
                    }
                }
            }
        }
    }

    /// Asks one engine; returns its address.
    async fn ask(&self, endpoint: Endpoint, observations: &mpsc::Sender<Observation>) -> SocketAddr {
        let (contact, result) = match self.fetch(&endpoint).await {
            Ok(text) => {
                self.record(&endpoint, &text);
                (Contact::Answered, "answered")
            }
            Err(contact @ Contact::Refused) => (contact, "refused"),
            Err(contact @ Contact::Silent) => (contact, "silent"),
            Err(contact @ Contact::Answered) => (contact, "unreadable"),
        };
        self.metrics.scrapes.get_or_create(&ByResult { result }).inc();
        let observation = Observation::Contacted { address: endpoint.spec.address, contact };
        if observations.send(observation).await.is_err() {
            tracing::debug!("the fleet is stopping; a scrape is dropped");
        }
        endpoint.spec.address
    }

    /// The text of the exposition, or how the contact went without one.
    async fn fetch(&self, endpoint: &Endpoint) -> Result<String, Contact> {
        let answer =
            self.client.get(&endpoint.name, "/metrics", EXPOSITION_MAX).await.map_err(
                |error| match error {
                    AskError::Connect(_) | AskError::Unsendable(_) => Contact::Refused,
                    AskError::Silent(_) | AskError::Broken(_) => Contact::Silent,
                    AskError::Unreadable(_) => Contact::Answered,
                },
            )?;
        if !answer.status.is_success() {
            return Err(Contact::Answered);
        }
        String::from_utf8(answer.body.into()).map_err(|_| Contact::Answered)
    }

    fn record(&self, endpoint: &Endpoint, text: &str) {
        let figures = parse_exposition(text, endpoint.ranks.len());
        for (rank, figures) in endpoint.ranks.iter().zip(figures) {
            let (own, now) = ((self.own)(rank.place), self.clock.now());
            if let (None, Some(tokens)) = (own.block_tokens, figures.block_tokens) {
                (self.guess)(rank.place, u32::try_from(count(tokens)).unwrap_or(0));
            }
            if figures.is_asleep == Some(true) && own.held_blocks > 0 {
                (self.sleeps)(rank.place);
            }
            let EngineFigures { running: Some(running), waiting, .. } = figures else { continue };
            let (running, waiting) = (count(running), count(waiting.unwrap_or(0.0)));
            let turnover = own
                .is_followed
                .then(|| rank.gauge.turn_over(own.held_blocks as u64, own.evicted_blocks, now));
            rank.gauge.set(Sample {
                at: now,
                running,
                waiting,
                kv_usage: figures.kv_usage.unwrap_or(0.0).min(1.0),
                pressure: pressure(figures, own.held_blocks, turnover.flatten()),
                foreign_sequences: (running + waiting).saturating_sub(own.sequences),
                foreign_waiting: waiting.saturating_sub(own.waiting),
                room_tokens: room(figures, own.block_tokens),
            });
        }
    }
}

/// Engines report only what running sequences use; blocks that are merely cached are free to them, yet a new block
/// evicts one of those as soon as the cache is full. So what left lately for what was stored counts too, and how full the
/// cache is by its events: one that fills up will soon be full, and sooner with copies.
fn pressure(figures: EngineFigures, held_blocks: usize, turnover: Option<f64>) -> f64 {
    let occupied = match figures.kv_blocks {
        Some(blocks) if blocks > 0.0 => held_blocks as f64 / blocks,
        _ => 0.0,
    };
    figures.kv_usage.unwrap_or(0.0).max(turnover.unwrap_or(0.0)).max(occupied).min(1.0)
}

/// Tokens that new sequences can have: memory that no running one uses, cached blocks included.
fn room(figures: EngineFigures, block_tokens: Option<u32>) -> Option<u64> {
    // What events tell is what the engine really uses.
    let block = block_tokens.map(f64::from).or(figures.block_tokens);
    let all = figures.kv_tokens.or_else(|| Some(figures.kv_blocks? * block?))?;
    Some(count(all * (1.0 - figures.kv_usage?.clamp(0.0, 1.0))))
}

/// A gauge of whole things, which the exposition writes as a float.
fn count(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_what_runs_or_what_leaves_or_how_full_it_is() {
        let figures = |kv_usage, kv_blocks| EngineFigures { kv_usage, kv_blocks, ..EngineFigures::default() };
        let table = [
            (figures(None, None), 100, None, 0.0),
            (figures(Some(0.25), None), 100, None, 0.25),
            (figures(Some(0.25), Some(200.0)), 100, None, 0.5),
            (figures(Some(0.75), Some(200.0)), 100, None, 0.75),
            (figures(None, Some(50.0)), 100, None, 1.0),
            (figures(Some(0.1), Some(0.0)), 100, None, 0.1),
            (figures(Some(0.1), Some(200.0)), 100, Some(0.7), 0.7),
            (figures(Some(0.1), Some(200.0)), 100, Some(0.0), 0.5),
            (figures(Some(0.1), None), 100, Some(0.3), 0.3),
        ];
        for (figures, held, turnover, expected) in table {
            assert_eq!(pressure(figures, held, turnover), expected, "{figures:?} {held} {turnover:?}");
        }
    }

    #[test]
    fn room_is_what_no_running_sequence_uses() {
        let figures = |kv_tokens, kv_blocks, block_tokens| EngineFigures {
            kv_usage: Some(0.25),
            kv_tokens,
            kv_blocks,
            block_tokens,
            ..EngineFigures::default()
        };
        assert_eq!(room(figures(None, Some(100.0), Some(16.0)), None), Some(1200));
        assert_eq!(room(figures(None, Some(100.0), Some(16.0)), Some(32)), Some(2400));
        assert_eq!(room(figures(Some(1000.0), None, None), None), Some(750));
        assert_eq!(room(figures(None, Some(100.0), None), None), None);
        assert_eq!(room(EngineFigures { kv_tokens: Some(1.0), ..EngineFigures::default() }, None), None);
    }
}
