//! Metrics of streams and index, made from their counters at each scrape.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use warmpath_kv::index::IndexStats;
use warmpath_kv::{Index, Trust};

use super::status::{Board, StreamStatus};

/// Reads the status of every stream and of the index at each scrape.
pub struct Collector {
    board: Arc<Board>,
    index: Arc<RwLock<Index>>,
}

/// Name, help, and where the value of one stream is; `None` leaves the stream out.
type StreamCounter = (&'static str, &'static str, fn(&StreamStatus) -> u64);
type StreamGauge = (&'static str, &'static str, fn(&StreamStatus) -> Option<f64>);

/// Each with the labels `endpoint` and `rank`.
const STREAM_COUNTERS: [StreamCounter; 19] = [
    ("kv_batches_published", "Event batches applied as published", |s| s.sequence.applied),
    ("kv_batches_replayed", "Event batches applied from a replay", |s| s.sequence.replayed),
    ("kv_batches_duplicate", "Event batches that had been applied already", |s| s.sequence.duplicates),
    ("kv_batches_missing", "Event batches missing when a gap was found", |s| s.sequence.missing_batches),
    ("kv_batches_lost", "Missing event batches that no replay brought back", |s| s.sequence.lost_batches),
    ("kv_batches_tail", "Event batches that only the probe of an idle stream brought", |s| {
        s.sequence.tail_batches
    }),
    ("kv_batches_undecodable", "Event batches that do not decode", |s| s.read.undecodable_batches),
    (
        "kv_batches_of_other_ranks",
        "Event batches left out because they name another rank than the first one did",
        |s| s.read.other_ranks,
    ),
    ("kv_events", "Events read", |s| s.read.events),
    ("kv_events_skipped", "Events of an unknown type or with unreadable fields", |s| {
        s.read.unknown_events + s.read.malformed_events
    }),
    ("kv_event_bytes", "Bytes of event payloads", |s| s.read.bytes),
    ("kv_gaps", "Gaps found in the numbers of a stream", |s| s.sequence.gaps),
    ("kv_replays", "Replays asked for", |s| s.sequence.replays),
    ("kv_replays_failed", "Replays without answer or without progress", |s| s.sequence.replays_failed),
    ("kv_probes_failed", "Probes of an idle stream without answer", |s| s.sequence.probes_failed),
    ("kv_restarts", "Engine restarts seen in the numbers of a stream", |s| s.sequence.restarts),
    ("kv_reconnects", "Connections of a stream after its first", |s| s.sequence.reconnects),
    ("kv_handshakes_failed", "Connections on which whoever answered did not speak ZeroMQ", |s| {
        s.read.handshakes_failed
    }),
    (
        "kv_resumed",
        "Connections after which what was held was shown to be of the same process, and kept",
        |s| s.sequence.resumed,
    ),
];

/// Each with the labels `endpoint` and `rank`.
const STREAM_GAUGES: [StreamGauge; 4] = [
    ("kv_connected", "Whether the event socket is connected", |s| Some(f64::from(u8::from(s.is_connected)))),
    (
        "kv_lag_seconds",
        "From the making of the last published batch (engine's clock) to its reading (ours)",
        |s| {
            // Exact far beyond any lag.
            s.lag_ms.and_then(|lag| i32::try_from(lag).ok()).map(|lag| f64::from(lag) / 1000.0)
        },
    ),
    ("kv_batches_waiting", "Event batches that wait for a replay", |s| {
        u32::try_from(s.waiting.batches).ok().map(f64::from)
    }),
    ("kv_stream_blocks", "Distinct blocks held", |s| u32::try_from(s.blocks).ok().map(f64::from)),
];

/// Counters of the index: name, help, label, and its values.
type IndexCounter = (&'static str, &'static str, &'static str, fn(&IndexStats) -> Vec<(&'static str, u64)>);

const INDEX_COUNTERS: [IndexCounter; 3] = [
    ("index_admissions", "Blocks that a stream came to hold, by cause", "cause", |stats| {
        let by = stats.admissions;
        vec![
            ("stored", by.stored),
            ("restored", by.restored),
            ("recognized", by.recognized),
            ("slower", by.slower),
            ("speculative", by.speculative),
        ]
    }),
    ("index_removals", "Blocks that a stream ceased to hold, by cause", "cause", |stats| {
        let by = stats.removals;
        vec![
            ("engine_removed", by.engine_removed),
            ("engine_cleared", by.engine_cleared),
            ("restarted", by.restarted),
            ("events_lost", by.events_lost),
            ("endpoint_gone", by.endpoint_gone),
            ("expired", by.expired),
            ("slower", by.slower),
        ]
    }),
    ("index_skipped", "Blocks told of but not indexed, by reason", "reason", |stats| {
        let by = stats.skipped;
        vec![
            ("unknown_stream", by.unknown_stream),
            ("other_medium", by.other_medium),
            ("placeholder", by.placeholder),
            ("unknown_parent", by.unknown_parent),
            ("unnamed_lora", by.unnamed_lora),
            ("token_mismatch", by.token_mismatch),
            ("block_size", by.block_size),
            ("groups", by.groups),
            ("conflicting_hash", by.conflicting_hash),
            ("copies", by.copies),
            ("capacity", by.capacity),
            ("speculative_capacity", by.speculative_capacity),
        ]
    }),
];

/// Counters of the index without a label.
type IndexTotal = (&'static str, &'static str, fn(&IndexStats) -> u64);

const INDEX_TOTALS: [IndexTotal; 2] = [
    ("index_attached", "Blocks that were aside and got their place when their parent was told", |stats| {
        stats.aside.attached
    }),
    ("index_unknown_removals", "Removals of blocks that were not held; usual after a late join", |stats| {
        stats.unknown_removals
    }),
];

/// Sizes of the index.
type IndexGauge = (&'static str, &'static str, fn(&IndexStats) -> usize);

const INDEX_GAUGES: [IndexGauge; 5] = [
    ("index_blocks", "Distinct blocks held or expected by any stream, or leading to one", |stats| {
        stats.blocks
    }),
    ("index_references", "Pairs of a stream and an engine hash", |stats| stats.references),
    ("index_speculative_blocks", "Pairs of a stream and a block held speculatively", |stats| {
        stats.speculative_blocks
    }),
    ("index_aside_blocks", "Blocks kept aside because the block before them is not known", |stats| {
        stats.aside.blocks
    }),
    ("index_aside_bytes", "Memory that those take, about", |stats| stats.aside.bytes),
];

// === impl Collector ===

impl Collector {
    pub(super) fn new(board: Arc<Board>, index: Arc<RwLock<Index>>) -> Self {
        Self { board, index }
    }
}

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let streams = self.board.snapshot();
        let index = self.index.read().stats();
        encode_streams(&streams, &mut encoder)?;
        encode_trust(&streams, &mut encoder)?;
        encode_index(&index, &mut encoder)
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}

fn encode_streams(streams: &[StreamStatus], encoder: &mut DescriptorEncoder) -> fmt::Result {
    for (name, help, value) in STREAM_COUNTERS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for stream in streams {
            ConstCounter::new(value(stream)).encode(metric.encode_family(&labels(stream))?)?;
        }
    }
    for (name, help, value) in STREAM_GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for stream in streams {
            if let Some(value) = value(stream) {
                ConstGauge::new(value).encode(metric.encode_family(&labels(stream))?)?;
            }
        }
    }
    Ok(())
}

/// One series per stream and trust, 1 for the trust it has.
fn encode_trust(streams: &[StreamStatus], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(
        "kv_trust",
        "How far a stream's index may be believed",
        None,
        MetricType::Gauge,
    )?;
    for stream in streams {
        for trust in Trust::NAMES {
            let [endpoint, rank] = labels(stream);
            let labels = [endpoint, rank, ("trust", trust.to_owned())];
            let value = i64::from(stream.trust.name() == trust);
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_index(index: &IndexStats, encoder: &mut DescriptorEncoder) -> fmt::Result {
    for (name, help, label, values) in INDEX_COUNTERS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (cause, value) in values(index) {
            ConstCounter::new(value).encode(metric.encode_family(&[(label, cause)])?)?;
        }
    }
    for (name, help, value) in INDEX_GAUGES {
        let gauge = ConstGauge::new(i64::try_from(value(index)).unwrap_or(i64::MAX));
        gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
    }
    for (name, help, value) in INDEX_TOTALS {
        ConstCounter::new(value(index)).encode(encoder.encode_descriptor(
            name,
            help,
            None,
            MetricType::Counter,
        )?)?;
    }
    Ok(())
}

fn labels(stream: &StreamStatus) -> [(&'static str, String); 2] {
    [("endpoint", stream.endpoint.clone()), ("rank", stream.rank.to_string())]
}
