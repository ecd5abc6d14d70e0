//! Lines on their way to where they are written. A thread of its own writes them, so whoever logs waits neither for a disk nor
//! for who reads the other end of a pipe. What finds no room is lost and counted, and so is what cannot be written.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait at most: seconds of a busy log, some megabytes.
const WAITING_MAX: usize = 8192;
/// Between two lines that tell how many were lost.
const TELL_PAUSE: Duration = Duration::from_secs(5);

/// Where lines go in. Clones share what follows.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    queue: SyncSender<Item>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Item {
    Line(Vec<u8>),
    /// Answered when all before it is written.
    Mark(SyncSender<()>),
}

// === impl Queue ===

impl Queue {
    /// Begins to write them to `out`.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, items) = sync_channel(WAITING_MAX);
        let lost = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&lost);
        thread::Builder::new().name("log".to_owned()).spawn(move || write(&items, out, &counted))?;
        Ok(Self { queue, lost })
    }

    /// Lines that were lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until what was logged by now is written, for `patience` at most.
    pub(super) fn finish(&self, patience: Duration) {
        let (written, told) = sync_channel(1);
        if self.queue.try_send(Item::Mark(written)).is_ok() {
            // An error says that it takes too long.
            _ = told.recv_timeout(patience);
        }
    }
}

impl Write for Queue {
    /// Takes one line at a time, as it comes from the formatter.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(Item::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Queue {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

fn write(items: &Receiver<Item>, mut out: impl Write, lost: &AtomicU64) {
    let mut told = (0, None::<Instant>);
    for item in items {
        let line = match item {
            Item::Line(line) => line,
            Item::Mark(written) => {
                // Who asked may have stopped waiting.
                _ = written.send(());
                continue;
            }
        };
        if out.write_all(&line).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let now_lost = lost.load(Ordering::Relaxed);
        if now_lost > told.0 && told.1.is_none_or(|at| at.elapsed() >= TELL_PAUSE) {
            tracing::warn!(
                lines = now_lost - told.0,
                "lines of this log were lost: they could not be written"
            );
            told = (now_lost, Some(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::{Condvar, Mutex};

    use super::*;

    /// Takes lines when it is told to.
    #[derive(Clone, Default)]
    struct Gate(Arc<(Mutex<Taken>, Condvar)>);

    #[derive(Default)]
    struct Taken {
        is_open: bool,
        bytes: Vec<u8>,
    }

    impl Gate {
        fn open(&self) {
            self.0.0.lock().is_open = true;
            self.0.1.notify_all();
        }

        fn written(&self) -> Vec<u8> {
            self.0.0.lock().bytes.clone()
        }
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.0.0.lock();
            self.0.1.wait_while(&mut state, |taken| !taken.is_open);
            state.bytes.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// More than any test takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn who_logs_never_waits_and_what_finds_no_room_is_counted() {
        let gate = Gate::default();
        let mut lines = Queue::start(gate.clone()).unwrap();
        for number in 0..WAITING_MAX + 100 {
            lines.write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        // One is with the writer.
        assert!((99..=100).contains(&lines.lost()), "{}", lines.lost());
        gate.open();
        // There is room as soon as it has taken some.
        while gate.written().len() < 64 {
            thread::yield_now();
        }
        lines.finish(PATIENCE);
        let written = String::from_utf8(gate.written()).unwrap();
        let expected: String = (0..WAITING_MAX).map(|number| format!("{number}\n")).collect();
        assert!(written.starts_with(&expected), "in order, and none between them missing");
    }

    /// A disk without room.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        let mut lines = Queue::start(Full).unwrap();
        for _ in 0..3 {
            lines.write_all(b"line\n").unwrap();
        }
        lines.finish(PATIENCE);
        assert_eq!(lines.lost(), 3);
    }
}
