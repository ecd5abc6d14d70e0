//! Metrics of the memory of prompts, read off its counters at each scrape.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::PromptMemo;

/// See the module's documentation.
#[derive(Debug)]
pub struct MemoCollector {
    pub memo: Arc<PromptMemo>,
}

impl Collector for MemoCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stats = self.memo.stats();
        let by_result = [
            (
                "prompt_memo_parts",
                "Parts of prompts that were found in the memory (found) or had to be encoded (encoded)",
                [("found", stats.parts_found), ("encoded", stats.parts_encoded)],
            ),
            (
                "prompt_memo_text_bytes",
                "Bytes of prompts that needed no encoding (found) or did, with the ends of prompts that are never remembered (encoded)",
                [("found", stats.bytes_found), ("encoded", stats.bytes_encoded)],
            ),
        ];
        for (name, help, values) in by_result {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (result, value) in values {
                ConstCounter::new(value).encode(family.encode_family(&[("result", result)])?)?;
            }
        }
        let help = "Parts dropped from the memory to make room for others";
        ConstCounter::new(stats.parts_dropped).encode(encoder.encode_descriptor(
            "prompt_memo_evictions",
            help,
            None,
            MetricType::Counter,
        )?)?;
        let gauges = [
            ("prompt_memo_bytes", "Bytes of memory in use for beginnings of prompts", stats.bytes_held),
            ("prompt_memo_entries", "Parts of prompts that are remembered", stats.parts_held),
        ];
        for (name, help, value) in gauges {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(encoder.encode_descriptor(
                name,
                help,
                None,
                MetricType::Gauge,
            )?)?;
        }
        Ok(())
    }
}
