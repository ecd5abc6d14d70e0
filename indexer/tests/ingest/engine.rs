//! The sockets of an engine, driven by the test: a PUB with its numbers, and a ROUTER with its buffer.

use std::collections::BTreeMap;

/// How the replay answers are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// vLLM up to 0.25: number, payload.
    Plain,
    /// vLLM 0.26 and newer: topic, number, payload.
    WithTopic,
}

/// What the replay does with the next questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Replay {
    Answers,
    /// It answers the next question without these batches, then all questions in full.
    Loses(Vec<u64>),
    /// It never answers.
    Hangs,
}

/// Ranks that an engine may have.
const RANKS: usize = 2;

pub(crate) struct Engine {
    publisher: zmq::Socket,
    router: zmq::Socket,
    framing: Framing,
    pub(crate) replay: Replay,
    /// Batches that the replay keeps, by number and rank.
    kept: BTreeMap<(u64, u8), Vec<u8>>,
    /// Of each rank's batches; all of them use the same sockets.
    next: [u64; RANKS],
    /// First numbers of the questions asked.
    pub(crate) questions: Vec<u64>,
    pub(crate) events: String,
    pub(crate) replays: String,
}

impl Engine {
    pub(crate) fn start() -> Self {
        Self::bind(Framing::WithTopic, "tcp://127.0.0.1:*", "tcp://127.0.0.1:*")
    }

    pub(crate) fn bind(framing: Framing, events: &str, replays: &str) -> Self {
        let context = zmq::Context::new();
        let publisher = context.socket(zmq::PUB).expect("a PUB socket");
        let router = context.socket(zmq::ROUTER).expect("a ROUTER socket");
        router.set_sndhwm(0).expect("no limit");
        for (socket, address) in [(&publisher, events), (&router, replays)] {
            socket.set_linger(0).expect("linger");
            // The port of an engine that just ended may be taken for a moment longer.
            let mut attempts = 0;
            while let Err(error) = socket.bind(address) {
                attempts += 1;
                assert!(attempts < 200, "{address}: {error}");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
        let address = |socket: &zmq::Socket| socket.get_last_endpoint().expect("bound").expect("UTF-8");
        Self {
            events: address(&publisher),
            replays: address(&router),
            publisher,
            router,
            framing,
            replay: Replay::Answers,
            kept: BTreeMap::new(),
            next: [0; RANKS],
            questions: Vec::new(),
        }
    }

    /// Another process on the same ports, which counts from 0.
    pub(crate) fn restart(self) -> Self {
        let (framing, events, replays) = (self.framing, self.events.clone(), self.replays.clone());
        drop(self);
        Self::bind(framing, &events, &replays)
    }

    pub(crate) fn publish(&mut self, events: &[Vec<u8>]) {
        let payload = batch(0, events);
        self.publish_payload(payload);
    }

    /// The same of one of several ranks.
    pub(crate) fn publish_of(&mut self, rank: u8, events: &[Vec<u8>]) {
        let payload = batch(rank, events);
        let number = self.next[usize::from(rank)].to_be_bytes().to_vec();
        self.publish_frames(vec![b"topic".to_vec(), number, payload.clone()]);
        self.keep(rank, payload);
    }

    /// The same under a topic of an engine's choice.
    pub(crate) fn publish_under(&mut self, topic: &str, events: &[Vec<u8>]) {
        let (number, payload) = (self.next[0].to_be_bytes().to_vec(), batch(0, events));
        self.publish_frames(vec![topic.as_bytes().to_vec(), number, payload.clone()]);
        self.keep(0, payload);
    }

    pub(crate) fn publish_payload(&mut self, payload: Vec<u8>) {
        let number = self.next[0].to_be_bytes().to_vec();
        self.publish_frames(vec![b"topic".to_vec(), number, payload.clone()]);
        self.keep(0, payload);
    }

    pub(crate) fn publish_frames(&self, frames: Vec<Vec<u8>>) {
        self.publisher.send_multipart(frames, 0).expect("sent");
    }

    /// A batch that is published but does not arrive.
    pub(crate) fn lose(&mut self, events: &[Vec<u8>]) {
        self.lose_of(0, events);
    }

    pub(crate) fn lose_of(&mut self, rank: u8, events: &[Vec<u8>]) {
        self.keep(rank, batch(rank, events));
    }

    /// Its buffer holds a batch under a number of a test's choice.
    pub(crate) fn keep_at(&mut self, number: u64, events: &[Vec<u8>]) {
        self.kept.insert((number, 0), batch(0, events));
    }

    /// Batches of the rank so far.
    pub(crate) fn published(&self, rank: u8) -> u64 {
        self.next[usize::from(rank)]
    }

    /// Its buffer no longer holds batches before this one.
    pub(crate) fn forget_before(&mut self, seq: u64) {
        self.kept = self.kept.split_off(&(seq, 0));
    }

    fn keep(&mut self, rank: u8, payload: Vec<u8>) {
        let next = &mut self.next[usize::from(rank)];
        self.kept.insert((*next, rank), payload);
        *next += 1;
    }

    /// Answers what was asked, and waits for questions for some milliseconds otherwise.
    pub(crate) fn serve(&mut self) {
        if self.router.poll(zmq::POLLIN, 5).expect("polled") == 0 {
            return;
        }
        let frames = self.router.recv_multipart(0).expect("a question");
        let [client, delimiter, number] = frames.as_slice() else {
            panic!("a question of {} frames", frames.len())
        };
        assert!(delimiter.is_empty());
        let from = u64::from_be_bytes(number.as_slice().try_into().expect("eight bytes"));
        self.questions.push(from);
        let lost = match std::mem::replace(&mut self.replay, Replay::Answers) {
            Replay::Answers => Vec::new(),
            Replay::Loses(lost) => lost,
            Replay::Hangs => {
                self.replay = Replay::Hangs;
                return;
            }
        };
        for ((seq, _), payload) in self.kept.range((from, 0)..).filter(|((seq, _), _)| !lost.contains(seq)) {
            self.answer(client, b"topic", &seq.to_be_bytes(), payload);
        }
        self.answer(client, b"", &[0xff; 8], b"");
    }

    fn answer(&self, client: &[u8], topic: &[u8], number: &[u8], payload: &[u8]) {
        let frames: Vec<&[u8]> = match self.framing {
            Framing::Plain => vec![client, b"", number, payload],
            Framing::WithTopic => vec![client, b"", topic, number, payload],
        };
        // The client may have given up; ROUTER then drops the message.
        self.router.send_multipart(frames, 0).expect("sent or dropped");
    }
}

// --- payloads, as vLLM 0.10.2 to 0.13 writes them; each with at most 15 elements ---

/// Two tokens a block.
pub(crate) fn stored(parent: Option<u8>, hashes: &[u8], tokens: &[u8]) -> Vec<u8> {
    let parent = parent.unwrap_or(NIL);
    [vec![0x97], name("BlockStored"), array(hashes), vec![parent], array(tokens), vec![2, NIL], name("GPU")]
        .concat()
}

pub(crate) fn removed(hashes: &[u8]) -> Vec<u8> {
    [vec![0x93], name("BlockRemoved"), array(hashes), name("GPU")].concat()
}

pub(crate) fn cleared() -> Vec<u8> {
    [vec![0x91], name("AllBlocksCleared")].concat()
}

const NIL: u8 = 0xc0;

fn batch(rank: u8, events: &[Vec<u8>]) -> Vec<u8> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let mut bytes = vec![0x93, 0xcb];
    bytes.extend(now.as_secs_f64().to_be_bytes());
    bytes.push(0x90 | short(events.len()));
    bytes.extend(events.concat());
    assert!(rank < 0x80, "only small numbers");
    bytes.push(rank);
    bytes
}

fn array(values: &[u8]) -> Vec<u8> {
    assert!(values.iter().all(|value| *value < 0x80), "only small numbers");
    [&[0x90 | short(values.len())], values].concat()
}

fn name(text: &str) -> Vec<u8> {
    [&[0xa0 | short(text.len())], text.as_bytes()].concat()
}

fn short(length: usize) -> u8 {
    u8::try_from(length).ok().filter(|length| *length < 32).expect("short")
}
