//! Gauges that are read off the current state at each scrape, so that they can never be out of step with it.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use warmpath_kv::Millis;

use crate::books::Books;
use crate::clock::Clock;
use crate::fleet::{Endpoint, Standing, View};
use crate::ledger::Load;

/// Load and health of every endpoint.
#[derive(Debug)]
pub struct EndpointCollector {
    pub view: Arc<View>,
    pub books: Arc<Mutex<Books>>,
    pub clock: Clock,
    /// As decisions take it.
    pub slow_start_ms: u64,
    /// Readings of engines older than this, in milliseconds, are not used.
    pub stale_ms: u64,
}

/// Name, help, and the value for one endpoint and the load reserved on it.
type EndpointGauge = (&'static str, &'static str, fn(&Endpoint, Load) -> u64);

/// Each with the label `endpoint`.
const GAUGES: [EndpointGauge; 3] = [
    (
        "endpoint_queued_tokens",
        "Tokens reserved on an endpoint that wait for their first token",
        |_, load| load.queued_tokens,
    ),
    ("endpoint_active_sequences", "Sequences reserved on an endpoint", |_, load| load.sequences),
    ("endpoint_usable", "1 unless the endpoint is avoided", |endpoint, _| endpoint.health.is_usable().into()),
];

/// The worst figure of an endpoint's ranks: all of them are near each other, and the worst is what is looked for.
type TermGauge = (&'static str, &'static str, fn(&EndpointCollector, &Endpoint, Millis) -> f64);

const TERMS: [TermGauge; 7] = [
    (
        "endpoint_slowness",
        "c: how many times slower an endpoint is than a reference one",
        |_, endpoint, _| endpoint.ranks.iter().map(|rank| rank.meter.slowness()).fold(0.0, f64::max),
    ),
    (
        "endpoint_ramp",
        "r: the share of its load that an endpoint takes yet, 1 once it is not young any more",
        |collector, endpoint, now| endpoint.meter.ramp(collector.slow_start_ms, now),
    ),
    ("endpoint_pressure", "p: how likely a new block evicts another, 0 to 1", |collector, endpoint, now| {
        let samples = endpoint.ranks.iter().filter_map(|rank| rank.gauge.fresh(now, collector.stale_ms));
        samples.map(|sample| sample.pressure).fold(0.0, f64::max)
    }),
    ("endpoint_error_tokens", "e: what its recent errors cost an endpoint, in tokens", |_, endpoint, now| {
        endpoint.errors.penalty(now)
    }),
    ("endpoint_ejected", "1 while an endpoint is not chosen because it fails too often", |_, endpoint, _| {
        flag(!matches!(endpoint.meter.standing(), Standing::Trusted { .. }))
    }),
    ("endpoint_draining", "1 while an endpoint gets nothing new", |_, endpoint, _| {
        flag(endpoint.meter.is_draining())
    }),
    (
        "endpoint_figures_stale",
        "1 while an engine's own figures are too old, or were never read, and only our own count is used",
        |collector, endpoint, now| {
            flag(endpoint.ranks.iter().any(|rank| rank.gauge.fresh(now, collector.stale_ms).is_none()))
        },
    ),
];

impl EndpointCollector {
    fn loads(&self, endpoints: &[Endpoint]) -> (Vec<Load>, usize) {
        let books = self.books.lock();
        let ledger = books.ledger();
        let loads = endpoints.iter().map(|endpoint| {
            endpoint.ranks.iter().map(|rank| ledger.load(rank.place)).fold(Load::default(), |sum, load| {
                Load {
                    queued_tokens: sum.queued_tokens + load.queued_tokens,
                    sequences: sum.sequences + load.sequences,
                    waiting: sum.waiting + load.waiting,
                }
            })
        });
        (loads.collect(), ledger.len())
    }
}

impl Collector for EndpointCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let fleet = self.view.current();
        let (loads, reservations) = self.loads(&fleet.endpoints);
        for (name, help, value) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (endpoint, load) in fleet.endpoints.iter().zip(&loads) {
                let labels = [("endpoint", &*endpoint.name)];
                gauge(value(endpoint, *load)).encode(family.encode_family(&labels)?)?;
            }
        }
        let now = self.clock.now();
        for (name, help, value) in TERMS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for endpoint in &fleet.endpoints {
                let labels = [("endpoint", &*endpoint.name)];
                let gauge: ConstGauge<f64> = ConstGauge::new(value(self, endpoint, now));
                gauge.encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Requests that are counted as open, here or at a peer";
        let count = u64::try_from(reservations).unwrap_or(u64::MAX);
        gauge(count).encode(encoder.encode_descriptor("reservations", help, None, MetricType::Gauge)?)
    }
}

fn flag(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
