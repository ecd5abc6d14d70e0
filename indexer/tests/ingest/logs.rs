//! What the event thread logs, for all tests of this program together.

use std::io::{self, Write};
use std::sync::OnceLock;

use parking_lot::Mutex;

static WRITTEN: Mutex<String> = Mutex::new(String::new());

/// Appends to [`WRITTEN`].
struct Sink;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.lock().push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to keep what is logged, by any thread.
pub(crate) fn keep() {
    static BEGUN: OnceLock<()> = OnceLock::new();
    BEGUN.get_or_init(|| {
        tracing_subscriber::fmt().with_writer(|| Sink).with_ansi(false).init();
    });
}

/// The lines that hold all of these words.
pub(crate) fn lines(words: &[&str]) -> Vec<String> {
    let written = WRITTEN.lock().clone();
    let lines = written.lines().filter(|line| words.iter().all(|word| line.contains(word)));
    lines.map(str::to_owned).collect()
}
