//! Waking a thread that waits in a poll: a byte through a socket pair.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// The end that wakes.
#[derive(Debug)]
pub(super) struct Waker(UnixStream);

/// The end that is polled.
#[derive(Debug)]
pub(super) struct Wakeup(UnixStream);

pub(super) fn pair() -> io::Result<(Waker, Wakeup)> {
    let (waker, wakeup) = UnixStream::pair()?;
    waker.set_nonblocking(true)?;
    wakeup.set_nonblocking(true)?;
    Ok((Waker(waker), Wakeup(wakeup)))
}

// === impl Waker ===

impl Waker {
    pub(super) fn wake(&self) {
        match (&self.0).write(&[1]) {
            // A full pipe wakes just as well.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The other end is gone, and with it the thread.
            Err(error) => tracing::debug!(%error, "the event thread cannot be woken"),
        }
    }
}

// === impl Wakeup ===

impl Wakeup {
    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Takes what woke it, so that the next poll waits again.
    pub(super) fn take(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.0).read(&mut bytes), Ok(1..)) {}
    }
}
