//! The fleet's thin edge: takes observations, publishes snapshots, and carries changes to event streams and books.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use warmpath_kv::StreamId;

use crate::books::Books;
use crate::clock::Clock;
use crate::decide::metrics::DecideMetrics;
use crate::drift::DriftMetrics;
use crate::fleet::metrics::{ByResult, FleetMetrics};
use crate::fleet::{Change, Endpoint, Fleet, Observation, Ports, View};
use crate::ingest::{Ingest, StreamSpec};
use crate::logs::News;
use crate::models::Registry;

/// Observations that may wait: one beat's scrapes of a large fleet. When they are more, scrapers wait.
pub const OBSERVATIONS_MAX: usize = 1024;

/// Owns the fleet.
pub struct FleetDriver {
    pub fleet: Fleet,
    pub view: Arc<View>,
    pub books: Arc<Mutex<Books>>,
    pub ingest: Arc<Ingest>,
    pub registry: Arc<Registry>,
    pub clock: Clock,
    pub metrics: FleetMetrics,
    /// These have values per endpoint, which go with it.
    pub decide_metrics: DecideMetrics,
    pub drift_metrics: DriftMetrics,
    pub told: News,
}

// === impl FleetDriver ===

impl FleetDriver {
    /// Runs until `stop`.
    pub async fn run(mut self, mut observations: mpsc::Receiver<Observation>, stop: CancellationToken) {
        loop {
            let observation = tokio::select! {
                () = stop.cancelled() => return,
                observation = observations.recv() => observation,
            };
            match observation {
                Some(observation) => self.observe(observation),
                // Nobody observes any more, so the set stays as it is.
                None => return stop.cancelled().await,
            }
        }
    }

    /// Takes in one observation. Decisions see the new set before anything of an old endpoint is forgotten.
    pub fn observe(&mut self, observation: Observation) {
        let listed = self.fleet.listed();
        let is_answer = matches!(observation, Observation::Resolved { .. });
        let changes = self.fleet.apply(observation);
        if is_answer || !changes.is_empty() {
            self.tell_absent();
        }
        if changes.is_empty() && listed == self.fleet.listed() {
            return;
        }
        for change in &changes {
            match change {
                Change::Added(endpoint) => self.add(endpoint),
                Change::HealthChanged { endpoint } if endpoint.health.is_usable() => {
                    endpoint.meter.come_back(self.clock.now());
                }
                Change::HealthChanged { .. } | Change::Removed(_) => {}
            }
        }
        self.view.publish(self.fleet.snapshot());
        for change in changes {
            match change {
                Change::Added(_) => {}
                Change::Removed(endpoint) => self.remove(&endpoint),
                Change::HealthChanged { endpoint } if endpoint.health.is_usable() => {
                    tracing::info!(endpoint = %endpoint.name, "answers again; used again");
                    self.count("usable");
                }
                Change::HealthChanged { endpoint } => {
                    tracing::warn!(endpoint = %endpoint.name, "refuses connections; avoided until it answers");
                    self.count("avoided");
                }
            }
        }
    }

    /// One line for all that are left out from now on, not for each answer.
    fn tell_absent(&mut self) {
        let absent = self.fleet.absent();
        let count = i64::try_from(absent.len()).unwrap_or(i64::MAX);
        if self.metrics.absent.set(count) == 0
            && let Some(first) = absent.first()
            && self.told.is_news("absent", Instant::now())
        {
            tracing::info!(endpoints = count, %first, "an answer to a lookup left out endpoints; kept for now");
        }
    }

    fn add(&mut self, endpoint: &Endpoint) {
        tracing::info!(endpoint = %endpoint.name, ranks = endpoint.ranks.len(), "endpoint added");
        self.count("added");
        endpoint.meter.begin(self.clock.now());
        for rank in &endpoint.ranks {
            rank.meter.set_slowness(endpoint.spec.capacity.slowness());
        }
        for (number, rank) in (0..).zip(&endpoint.ranks) {
            self.follow(endpoint, number, rank.place);
        }
    }

    /// Begins to read the events of one rank, where it has any.
    fn follow(&self, endpoint: &Endpoint, rank: u32, place: StreamId) {
        let spec = &endpoint.spec;
        let Some(source) = spec.source(rank) else { return };
        let stream = StreamSpec {
            id: place,
            endpoint: endpoint.name.to_string(),
            rank,
            events: source.events.to_string(),
            replay: source.replay.map(|replay| replay.to_string()),
            shared: spec.ports == Ports::Shared,
            model: self.model_of(endpoint),
        };
        if let Err(error) = self.ingest.add_stream(stream) {
            tracing::error!(endpoint = %endpoint.name, rank, %error, "events are not read; ranked by load only");
        }
    }

    fn remove(&mut self, endpoint: &Endpoint) {
        let now = self.clock.now();
        let mut reservations = 0;
        for rank in &endpoint.ranks {
            if let Err(error) = self.ingest.remove_stream(rank.place) {
                tracing::error!(endpoint = %endpoint.name, %error, "the event stream of a removed endpoint stays open");
            }
            reservations += self.books.lock().remove_place(rank.place, now);
        }
        let model = self.model_of(endpoint);
        self.decide_metrics.forget(&model, &endpoint.name);
        self.drift_metrics.forget_endpoint(&model, &endpoint.name);
        tracing::info!(endpoint = %endpoint.name, reservations, "endpoint removed");
        self.count("removed");
    }

    fn model_of(&self, endpoint: &Endpoint) -> String {
        self.registry.name(endpoint.spec.model).to_string()
    }

    fn count(&self, result: &'static str) {
        self.metrics.changes.get_or_create(&ByResult { result }).inc();
    }
}

#[cfg(test)]
mod tests {

    use parking_lot::RwLock;
    use warmpath_kv::{Index, IndexLimits, KeyHasher};

    use super::*;
    use crate::books::{DecisionIds, IndexerId, Placed};
    use crate::config::StreamAddress;
    use crate::fleet::EndpointSpec;
    use crate::ingest::IngestConfig;
    use crate::ledger::{Event, Forecast};

    fn listed(hosts: &[u8]) -> Observation {
        let endpoints = hosts.iter().map(|host| EndpointSpec {
            ranks: 2,
            events: Some(StreamAddress::new(format!("127.0.0.{host}"), 1)),
            ..EndpointSpec::plain(([127, 0, 0, *host], 1))
        });
        Observation::Listed { source: 0, endpoints: endpoints.collect() }
    }

    /// What an endpoint leaves behind when it goes: neither load, nor a stream, nor anything for its successor.
    #[test]
    fn an_endpoint_that_goes_takes_its_load_and_its_streams_along() {
        let clock = Clock::start();
        let index = Arc::new(RwLock::new(Index::new(KeyHasher::new([0; 16]), IndexLimits::default())));
        let own = IndexerId::random();
        let mut driver = FleetDriver {
            fleet: Fleet::new(3),
            view: Arc::default(),
            books: Arc::new(Mutex::new(Books::new(own, 100))),
            ingest: Arc::new(
                crate::ingest::start(IngestConfig::default(), index.clone(), clock, Vec::new()).unwrap(),
            ),
            registry: Arc::new(Registry::of_names(&[])),
            clock,
            metrics: FleetMetrics::default(),
            decide_metrics: DecideMetrics::new(),
            drift_metrics: DriftMetrics::default(),
            told: News::default(),
        };
        driver.observe(listed(&[1, 2]));
        assert_eq!(index.read().stats().streams, 4);
        let before = driver.view.current();
        let place = before.endpoints[0].ranks[1].place;
        let id = DecisionIds::new(own).next();
        let placed = Placed {
            endpoint: "127.0.0.1:1".into(),
            rank: 1,
            queued_tokens: 9,
            sequences: 1,
            lease_ms: 1000,
            expected: None,
        };
        let forecast = Forecast::of_nothing();
        driver.books.lock().reserve(id, place, placed, forecast, clock.now()).unwrap();

        driver.observe(listed(&[2]));
        assert!(driver.books.lock().ledger().is_empty());
        assert_eq!(index.read().stats().streams, 2);
        driver.observe(listed(&[1, 2]));
        let after = driver.view.current();
        assert!(after.by_place(place).is_none(), "the successor has places of its own");
        let late = driver.books.lock().report(id, Event::Released, &after, clock.now());
        assert_eq!(late, None);
    }
}
