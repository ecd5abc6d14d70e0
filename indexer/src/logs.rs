//! Logs: JSON lines or text, on standard error. Never prompt text: lengths, names and ids only.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use tracing_subscriber::EnvFilter;

#[cfg(test)]
mod lines;
mod news;
mod queue;

#[cfg(test)]
pub(crate) use lines::Lines;
pub use news::News;
use queue::Queue;

use crate::config::{Log, LogFormat};

const CLIENT_OF_REDIS: &str = "redis=off";
/// Longest that the end of the program waits for its last lines to be written.
const LAST_LINES_MAX: Duration = Duration::from_secs(1);

/// Of this process, once it logs.
static LINES: OnceLock<Queue> = OnceLock::new();

/// Starts logging for the process; a second call does nothing.
pub fn start(log: &Log) -> io::Result<()> {
    // The level was checked with the configuration.
    let filter = EnvFilter::try_new(&log.level).unwrap_or_default();
    // The client of Redis tells of every attempt; what matters of that is told by the mirror, now and then.
    let filter = match CLIENT_OF_REDIS.parse() {
        Ok(directive) if !log.level.contains("redis") => filter.add_directive(directive),
        _ => filter,
    };
    let lines = Queue::start(io::stderr())?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines.clone());
    let started = match log.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
    };
    match started {
        Ok(()) => drop(LINES.set(lines)),
        Err(error) => tracing::debug!(%error, "logging runs already"),
    }
    Ok(())
}

/// Has what was logged written, for a program that ends. Does not wait long for a reader that does not read.
pub fn finish() {
    if let Some(lines) = LINES.get() {
        lines.finish(LAST_LINES_MAX);
    }
}

/// The count of lines that were lost.
#[derive(Debug)]
pub struct LostLines;

impl Collector for LostLines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Lines of the log that could not be written, or not soon enough";
        let counter = ConstCounter::new(LINES.get().map_or(0, Queue::lost));
        counter.encode(encoder.encode_descriptor("log_lines_lost", help, None, MetricType::Counter)?)
    }
}
