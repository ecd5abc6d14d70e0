//! `/metrics` with the engine's names, one sample per rank.

use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::App;
use crate::histogram::append;
use crate::rank::RankStats;

/// Name, type and value of the plain metrics.
type Plain = (&'static str, &'static str, fn(&RankStats) -> f64);

const PLAIN: [Plain; 8] = [
    ("vllm:num_requests_running", "gauge", |s| s.summary.running as f64),
    ("vllm:num_requests_waiting", "gauge", |s| s.summary.waiting as f64),
    ("vllm:kv_cache_usage_perc", "gauge", |s| s.summary.usage),
    ("vllm:prefix_cache_queries_total", "counter", |s| s.summary.counters.prefix_queries as f64),
    ("vllm:prefix_cache_hits_total", "counter", |s| s.summary.counters.prefix_hits as f64),
    ("vllm:num_preemptions_total", "counter", |s| s.summary.counters.preemptions as f64),
    ("vllm:prompt_tokens_total", "counter", |s| s.summary.counters.prompt_tokens as f64),
    ("vllm:generation_tokens_total", "counter", |s| s.summary.counters.generation_tokens as f64),
];

const TTFT: &str = "vllm:time_to_first_token_seconds";

pub(super) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    let config = &app.shared().config;
    let mut out = String::new();
    let stats: Vec<(String, RankStats)> = app
        .ranks()
        .iter()
        .enumerate()
        .map(|(rank, handle)| {
            (format!("engine=\"{rank}\",model_name=\"{}\"", escaped(&config.model)), handle.stats())
        })
        .collect();
    for (name, kind, value) in PLAIN {
        // The type line names the family, which for counters is the name without its suffix.
        append(&mut out, format_args!("# TYPE {} {kind}\n", name.trim_end_matches("_total")));
        for (labels, stats) in &stats {
            append(&mut out, format_args!("{name}{{{labels}}} {:?}\n", value(stats)));
        }
    }
    append(&mut out, format_args!("# TYPE {TTFT} histogram\n"));
    for (labels, stats) in &stats {
        stats.ttft.render(&mut out, TTFT, labels);
    }
    append(&mut out, format_args!("# TYPE vllm:cache_config_info gauge\n"));
    for rank in 0..stats.len() {
        append(
            &mut out,
            format_args!(
                "vllm:cache_config_info{{block_size=\"{}\",enable_prefix_caching=\"True\",engine=\"{rank}\",\
                 num_gpu_blocks=\"{}\",prefix_caching_hash_algo=\"sha256\"}} 1.0\n",
                config.block_size, config.blocks,
            ),
        );
    }
    append(&mut out, format_args!("# TYPE vllm:engine_sleep_state gauge\n"));
    let is_asleep = app.0.is_asleep.load(Ordering::Relaxed);
    for (labels, _) in &stats {
        let states = [("awake", !is_asleep), ("weights_offloaded", is_asleep), ("discard_all", false)];
        for (state, holds) in states {
            let value = f64::from(u8::from(holds));
            append(
                &mut out,
                format_args!("vllm:engine_sleep_state{{{labels},sleep_state=\"{state}\"}} {value:?}\n"),
            );
        }
    }
    append(&mut out, format_args!("# TYPE process_start_time_seconds gauge\n"));
    append(&mut out, format_args!("process_start_time_seconds {:?}\n", app.0.started_unix));
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], out)
}

/// A label value with the characters escaped that the format reserves.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
