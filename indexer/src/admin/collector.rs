//! Gauges that are read off the current state at each scrape, so that they can never be out of step with it.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::books::Books;
use crate::fleet::{Endpoint, View};
use crate::ledger::Load;

/// Load and health of every endpoint.
#[derive(Debug)]
pub struct EndpointCollector {
    pub view: Arc<View>,
    pub books: Arc<Mutex<Books>>,
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

impl EndpointCollector {
    fn loads(&self, endpoints: &[Endpoint]) -> (Vec<Load>, usize) {
        let books = self.books.lock();
        let ledger = books.ledger();
        let loads = endpoints.iter().map(|endpoint| {
            endpoint.ranks.iter().map(|rank| ledger.load(rank.place)).fold(Load::default(), |sum, load| {
                Load {
                    queued_tokens: sum.queued_tokens + load.queued_tokens,
                    sequences: sum.sequences + load.sequences,
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
        let help = "Requests that are counted as open, here or at a peer";
        let count = u64::try_from(reservations).unwrap_or(u64::MAX);
        gauge(count).encode(encoder.encode_descriptor("reservations", help, None, MetricType::Gauge)?)
    }
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
