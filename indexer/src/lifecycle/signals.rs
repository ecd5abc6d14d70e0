//! The signals that end the program, and the one that makes it read its models again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for SIGTERM or SIGINT and names it.
pub async fn next_signal() -> io::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}

/// Every SIGHUP from now on. Until this is called, one ends the program.
pub fn hangups() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}
