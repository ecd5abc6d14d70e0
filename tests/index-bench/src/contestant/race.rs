//! Lookups on one thread while changes are applied at a steady pace on another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Race, Raced};
use crate::measure::{Samples, pin};
use crate::{READER_CPU, WRITER_CPU};

/// How the changes come in.
pub(super) enum Paced<E, F> {
    /// `apply` is called on a thread of its own that does nothing else but wait for the next one's time.
    Beside { events: Vec<E>, apply: F },
    /// The contestant has a writing thread of its own that is handed events: the reader does that, between lookups.
    #[cfg(feature = "peers")]
    Handed { events: Vec<E>, hand: F },
}

/// Looks up one prompt: time in nanoseconds, workers found, and their blocks in all.
type Look = (u64, (usize, u64));

/// Runs until all events are applied. `look`: see [`Look`].
pub(super) fn race<E: Send, F: FnMut(E) + Send>(
    setting: &Race<'_>,
    paced: Paced<E, F>,
    mut look: impl FnMut(usize) -> Look,
) -> Raced {
    pin(READER_CPU);
    let period = Duration::from_secs(1) / setting.rate;
    let mut reader = Reader { setting, lookups: Samples::default(), wrong: 0, next: 0 };
    let (count, time) = match paced {
        Paced::Beside { events, apply } => {
            let is_over = AtomicBool::new(false);
            let count = events.len();
            let time = std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    pin(WRITER_CPU);
                    let time = keep_pace(events, period, apply);
                    is_over.store(true, Ordering::Release);
                    time
                });
                while !is_over.load(Ordering::Acquire) {
                    reader.look(&mut look);
                }
                writer.join().expect("the writer comes to its end")
            });
            (count, time)
        }
        #[cfg(feature = "peers")]
        Paced::Handed { events, mut hand } => {
            let count = events.len();
            let begin = Instant::now();
            for (due, event) in (1_u32..).map(|number| begin + period * number).zip(events) {
                // At least one lookup per event, so that neither waits for the other for ever.
                reader.look(&mut look);
                while Instant::now() < due {
                    reader.look(&mut look);
                }
                hand(event);
            }
            (count, begin.elapsed())
        }
    };
    Raced { lookups: reader.lookups, rate: count as f64 / time.as_secs_f64(), wrong: reader.wrong }
}

struct Reader<'a> {
    setting: &'a Race<'a>,
    lookups: Samples,
    wrong: usize,
    next: usize,
}

// === impl Reader ===

impl Reader<'_> {
    fn look(&mut self, look: &mut impl FnMut(usize) -> Look) {
        let at = self.next % self.setting.prompts.len();
        self.next += 1;
        let (nanoseconds, found) = look(self.setting.prompts[at]);
        self.lookups.push(nanoseconds);
        self.wrong += usize::from(found != self.setting.expected[at]);
    }
}

/// Applies each event at its time, or at once where that is over. Returns how long it took in all.
fn keep_pace<E>(events: Vec<E>, period: Duration, mut apply: impl FnMut(E)) -> Duration {
    let begin = Instant::now();
    for (due, event) in (1_u32..).map(|number| begin + period * number).zip(events) {
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        apply(event);
    }
    begin.elapsed()
}
