//! Logs: JSON lines or text, on standard error. Never prompt text: lengths, names and ids only.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

#[cfg(test)]
mod lines;
mod news;

#[cfg(test)]
pub(crate) use lines::Lines;
pub use news::News;

use crate::config::{Log, LogFormat};

const CLIENT_OF_REDIS: &str = "redis=off";

/// Starts logging for the process; a second call does nothing.
pub fn start(log: &Log) {
    // The level was checked with the configuration.
    let filter = EnvFilter::try_new(&log.level).unwrap_or_default();
    // The client of Redis tells of every attempt; what matters of that is told by the mirror, now and then.
    let filter = match CLIENT_OF_REDIS.parse() {
        Ok(directive) if !log.level.contains("redis") => filter.add_directive(directive),
        _ => filter,
    };
    // A line that cannot be written, as on a full disk, is lost: told on standard error too, it would end the program.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    let started = match log.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging runs already");
    }
}
