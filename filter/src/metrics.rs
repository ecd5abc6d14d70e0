//! The filter's statistics in the proxy. Names, units and meaning are listed in `filter/README.md`.
//!
//! The host interface has no labels, so a label stands in the name, as `….label.value`; a tag rule of the bootstrap makes
//! a label of it again.

use std::collections::BTreeMap;

use proxy_wasm::types::MetricType;
use warmpath_core::outcome::{Outcome, Reason};
use warmpath_core::session::Settled;

use crate::host;

const PREFIX: &str = "warmpath_filter_";

/// Handles of all statistics. One that could not be defined is absent, and counted nowhere.
#[derive(Debug)]
pub(crate) struct Metrics {
    by_outcome: BTreeMap<Outcome, Option<u32>>,
    by_reason: BTreeMap<Reason, Option<u32>>,
    added_us: Option<u32>,
    rpc_us: Option<u32>,
    pending: Option<u32>,
    circuit_open: Option<u32>,
    events_reported: Option<u32>,
    events_dropped: Option<u32>,
    reports_failed: Option<u32>,
    astray: Option<u32>,
}

impl Metrics {
    pub(crate) fn define() -> Self {
        let define = |kind, name: &str| host::define_metric(kind, &format!("{PREFIX}{name}"));
        let counter = |name: &str| define(MetricType::Counter, name);
        let per = |family: &str, label: &str, value: &str| counter(&format!("{family}.{label}.{value}"));
        Self {
            by_outcome: Outcome::ALL.map(|o| (o, per("requests_total", "outcome", o.name()))).into(),
            by_reason: Reason::ALL.iter().map(|r| (*r, per("unscored_total", "reason", r.name()))).collect(),
            added_us: define(MetricType::Histogram, "added_latency_us"),
            rpc_us: define(MetricType::Histogram, "indexer_rpc_us"),
            pending: define(MetricType::Gauge, "pending_requests"),
            circuit_open: define(MetricType::Gauge, "circuit_open_workers"),
            events_reported: counter("events_reported_total"),
            events_dropped: counter("events_dropped_total"),
            reports_failed: counter("reports_failed_total"),
            astray: counter("astray_total"),
        }
    }

    pub(crate) fn settled(&self, settled: Settled) {
        host::add_to_metric(self.by_outcome.get(&settled.outcome).copied().flatten(), 1);
        if let Some(reason) = settled.reason.filter(|_| settled.outcome != Outcome::Scored) {
            host::add_to_metric(self.by_reason.get(&reason).copied().flatten(), 1);
        }
        if let Some(us) = settled.added_us {
            host::record_metric(self.added_us, us);
        }
        if let Some(us) = settled.asked_us {
            host::record_metric(self.rpc_us, us);
        }
    }

    /// Gauges are shared by all workers: each adds what changed since it last did.
    pub(crate) fn pending_changed(&self, by: i64) {
        if by != 0 {
            host::add_to_metric(self.pending, by);
        }
    }

    pub(crate) fn circuit_changed(&self, open: bool) {
        host::add_to_metric(self.circuit_open, if open { 1 } else { -1 });
    }

    pub(crate) fn reported(&self, events: usize) {
        host::add_to_metric(self.events_reported, i64::try_from(events).unwrap_or(i64::MAX));
    }

    pub(crate) fn dropped(&self, events: u64) {
        if events > 0 {
            host::add_to_metric(self.events_dropped, i64::try_from(events).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn astray(&self, requests: u64) {
        if requests > 0 {
            host::add_to_metric(self.astray, i64::try_from(requests).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn report_failed(&self) {
        host::add_to_metric(self.reports_failed, 1);
    }
}
