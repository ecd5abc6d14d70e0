//! The loop of the event thread: waits for any socket, lets each stream read a bounded amount, lets time pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use warmpath_kv::{Index, Input, Millis, StaleBy, StreamId, Trust};
use zmq::{Context, PollEvents};

use crate::clock::Clock;

use super::IngestConfig;
use super::mailbox::{Found, Mail, Mailbox, Question};
use super::status::Board;
use super::stream::Stream;
use super::turn::{Ready, Turn, Yield};
use super::wake::Wakeup;

/// How often streams see time pass, in milliseconds: the resolution of their deadlines.
const TICK_MS: u64 = 50;

/// A ZeroMQ context holds 1023 sockets, and a stream has up to five: events, the monitor's two ends, and a replay that
/// may overlap with the closing of the one before.
const STREAMS_PER_CONTEXT: u32 = 128;

/// Where messages come one close after another, the thread rests so long between two turns, for further ones to gather:
/// waking up, asking every socket and telling the index costs more than a message. A message that comes alone is read at
/// once.
const REST: Duration = Duration::from_millis(1);

/// Messages are close after one another where this many milliseconds lie between them at most.
const CLOSE_MS: u64 = 1;

pub(super) struct Driver {
    config: IngestConfig,
    index: Arc<RwLock<Index>>,
    clock: Clock,
    board: Arc<Board>,
    mailbox: Arc<Mailbox>,
    wakeup: Wakeup,
    contexts: BTreeMap<u32, Context>,
    streams: BTreeMap<StreamId, Stream>,
}

/// Whether the loop goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Continue,
    End,
}

// === impl Driver ===

impl Driver {
    pub(super) fn new(
        config: IngestConfig,
        index: Arc<RwLock<Index>>,
        clock: Clock,
        board: Arc<Board>,
        mailbox: Arc<Mailbox>,
        wakeup: Wakeup,
    ) -> Self {
        Self {
            config,
            index,
            clock,
            board,
            mailbox,
            wakeup,
            contexts: BTreeMap::new(),
            streams: BTreeMap::new(),
        }
    }

    pub(super) fn run(mut self) {
        let mut next_tick = self.clock.now();
        let mut read_at = None;
        loop {
            self.board.turn(self.clock.now());
            if self.take_mail() == Flow::End {
                return;
            }
            let ready = match self.wait(next_tick) {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::error!(%error, "polling the event sockets failed; no KV events are read any more");
                    return self.distrust_all();
                }
            };
            let now = self.clock.now();
            let turn = Turn { index: &self.index, now, wall: SystemTime::now() };
            let has_ticked = now >= next_tick;
            let mut read = Yield::Nothing;
            for (stream, ready) in self.streams.values_mut().zip(ready) {
                read = read.max(stream.read(ready, turn));
                if has_ticked {
                    stream.tick(turn);
                }
                if let Some(status) = stream.take_status(&self.index, has_ticked) {
                    self.board.post(status);
                }
            }
            if has_ticked {
                next_tick = now.plus(TICK_MS);
            }
            if read > Yield::Nothing {
                if read == Yield::All && read_at.is_some_and(|before| now.since(before) <= CLOSE_MS) {
                    std::thread::sleep(REST);
                }
                read_at = Some(self.clock.now());
            }
        }
    }

    /// What is held goes on aging without events, so none of it may be scored.
    fn distrust_all(&self) {
        let mut index = self.index.write();
        for id in self.streams.keys() {
            index.set_trust(*id, Trust::Stale(StaleBy::Disconnected));
        }
        drop(index);
        self.board.disconnect_all();
    }

    fn take_mail(&mut self) -> Flow {
        let Mail { forget, follow, found, questions, waiting, is_end } = self.mailbox.take();
        for id in forget {
            self.streams.remove(&id);
            self.board.remove(id);
            if !self.streams.keys().any(|other| context_of(*other) == context_of(id)) {
                self.contexts.remove(&context_of(id));
            }
        }
        for (id, (spec, resumed)) in follow {
            let context = self.contexts.entry(context_of(id)).or_default().clone();
            let mut stream = Stream::new(spec, resumed, self.config.sequencer, context, self.turn());
            if let Some(status) = stream.take_status(&self.index, true) {
                self.board.post(status);
            }
            self.streams.insert(id, stream);
        }
        for (id, found) in found {
            for found in found {
                self.tell(id, found);
            }
        }
        for Question { stream, answer } in questions {
            let taken = self.streams.get(&stream).and_then(|stream| stream.image(&self.index));
            // Whoever asked may have gone.
            let _gone = answer.send(taken);
        }
        for done in waiting {
            let _gone = done.send(());
        }
        if is_end { Flow::End } else { Flow::Continue }
    }

    /// Tells a stream what was found out about its engine elsewhere.
    fn tell(&mut self, id: StreamId, found: Found) {
        let input = match found {
            Found::Contradicted => Input::Contradicted,
            Found::Asleep => Input::Asleep,
        };
        let turn = Turn { index: &self.index, now: self.clock.now(), wall: SystemTime::now() };
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.admit(input, turn);
        }
    }

    fn turn(&self) -> Turn<'_> {
        Turn { index: &self.index, now: self.clock.now(), wall: SystemTime::now() }
    }

    /// Waits until a socket has something or the tick is due. What is ready, in the order of the streams.
    fn wait(&self, next_tick: Millis) -> Result<Vec<Ready>, zmq::Error> {
        let mut items = vec![zmq::PollItem::from_fd(self.wakeup.fd(), PollEvents::POLLIN)];
        for socket in self.streams.values().flat_map(Stream::sockets).flatten() {
            items.push(socket.as_poll_item(PollEvents::POLLIN));
        }
        let timeout = next_tick.since(self.clock.now());
        match zmq::poll(&mut items, i64::try_from(timeout).unwrap_or(i64::MAX)) {
            Ok(_) | Err(zmq::Error::EINTR) => {}
            Err(error) => return Err(error),
        }
        let mut is_ready = items.iter().map(zmq::PollItem::is_readable);
        if is_ready.next() == Some(true) {
            self.wakeup.take();
        }
        Ok(self
            .streams
            .values()
            .map(|stream| {
                let [monitor, replay, events] =
                    stream.sockets().map(|socket| socket.is_some() && is_ready.next() == Some(true));
                Ready { monitor, replay, events }
            })
            .collect())
    }
}

/// A thread that panics leaves no stream behind that is still believed, and nobody who waits for it.
impl Drop for Driver {
    fn drop(&mut self) {
        self.mailbox.close();
        if std::thread::panicking() {
            self.distrust_all();
        }
    }
}

/// Which context a stream's sockets belong to. Ids are allotted in order, so that contexts fill up.
fn context_of(id: StreamId) -> u32 {
    id.0 / STREAMS_PER_CONTEXT
}

#[cfg(test)]
mod tests {
    use warmpath_kv::{IndexLimits, KeyHasher};

    use super::super::{StreamSpec, StreamStatus, wake};
    use super::*;

    #[test]
    fn a_thread_that_panics_leaves_nothing_to_be_believed() {
        let index = Arc::new(RwLock::new(Index::new(KeyHasher::new([0; 16]), IndexLimits::default())));
        let mailbox = Arc::new(Mailbox::default());
        let (_waker, wakeup) = wake::pair().unwrap();
        let config = IngestConfig::default();
        let board = Arc::new(Board::default());
        let mut driver =
            Driver::new(config, index.clone(), Clock::start(), board.clone(), mailbox.clone(), wakeup);
        let id = StreamId(1);
        index.write().add_stream(id, "m");
        let spec = StreamSpec::of_nobody(id);
        mailbox.follow(spec, None).unwrap();
        assert_eq!(driver.take_mail(), Flow::Continue);
        index.write().set_trust(id, Trust::Live);
        let live = |status: StreamStatus| StreamStatus { trust: Trust::Live, is_connected: true, ..status };
        board.snapshot().into_iter().map(live).for_each(|status| board.post(status));
        let thread = std::thread::spawn(move || {
            let _driver = driver;
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
        let trust = index.read().stream_stats(id).map(|stream| stream.trust);
        assert_eq!(trust, Some(Trust::Stale(StaleBy::Disconnected)));
        assert!(mailbox.forget(id).is_err(), "nobody is there to be told");
        let told: Vec<_> = board.snapshot().iter().map(|told| (told.trust, told.is_connected)).collect();
        assert_eq!(told, [(Trust::Stale(StaleBy::Disconnected), false)], "nor told to be");
    }
}
