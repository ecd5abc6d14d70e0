//! The signals that end the program, and the one that makes it read its models again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Every SIGTERM and SIGINT from now on. Until there is one of these, they end the process at once, or, of the first process
/// of a container, do nothing at all.
#[derive(Debug)]
pub struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

// === impl EndSignals ===

impl EndSignals {
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one and names it.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            Some(()) = self.terminate.recv() => "SIGTERM",
            Some(()) = self.interrupt.recv() => "SIGINT",
            else => std::future::pending().await,
        }
    }
}

/// Every SIGHUP from now on. Until this is called, one ends the program.
pub fn hangups() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}
