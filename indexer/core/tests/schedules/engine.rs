//! One rank of an engine: a process with its cache, its numbers and its replay buffer, and another one after a restart.

use std::collections::{BTreeMap, VecDeque};

use crate::cache::{Cache, Change, Copies};
use crate::payload::{self, Form};
use crate::rng::Rng;

/// A batch on its way. `process` is what no message tells: the test's own knowledge of who made it.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) process: u64,
    pub(crate) seq: u64,
    pub(crate) payload: Vec<u8>,
}

/// A question at the replay socket, and the client that waits for its answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) client: u64,
    pub(crate) from: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Batch(Message),
    End,
}

pub(crate) struct Process {
    pub(crate) number: u64,
    /// Seed of its hashes.
    pub(crate) seed: u64,
    form: Form,
    tells_time: bool,
    cache: Cache,
    /// The cache after so many batches.
    states: Vec<Copies>,
    kept: BTreeMap<u64, Message>,
    keeps: usize,
    /// The buffer lacks a batch for good, or a batch was none: nobody can know the whole cache.
    pub(crate) has_lost: bool,
    pub(crate) questions: VecDeque<Question>,
}

/// What becomes of a batch at the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    Sound,
    /// It is not in the replay buffer.
    NotKept,
    /// Its payload is no batch.
    Garbled,
}

// === impl Process ===

impl Process {
    pub(crate) fn start(number: u64, keeps: usize, rng: &mut Rng) -> Self {
        // Half of all engines have the same hashes in all processes.
        let seed = if rng.one_in(2) { 7 } else { rng.next() };
        let form = Form { is_map: rng.one_in(2), has_digests: rng.one_in(3) };
        Self {
            number,
            seed,
            form,
            tells_time: !rng.one_in(4),
            cache: Cache::new(seed),
            states: vec![Copies::new()],
            kept: BTreeMap::new(),
            keeps,
            has_lost: false,
            questions: VecDeque::new(),
        }
    }

    /// Batches made so far, and so the number of the next one.
    pub(crate) fn made(&self) -> u64 {
        u64::try_from(self.states.len() - 1).expect("few")
    }

    /// The cache after this many batches.
    pub(crate) fn state(&self, batches: u64) -> &Copies {
        &self.states[usize::try_from(batches).expect("few")]
    }

    pub(crate) fn work(&mut self, making: Making, rng: &mut Rng) -> Message {
        let changes = self.cache.work(rng);
        self.make(making, &changes)
    }

    pub(crate) fn empty(&mut self) -> Message {
        let change = self.cache.empty();
        self.make(Making::Sound, &[change])
    }

    fn make(&mut self, making: Making, changes: &[Change]) -> Message {
        // Later ones of one process are later, and those of the next one later still; some engines tell no time.
        let made_at = if self.tells_time { 1e6 * (self.number + 1) as f64 + self.made() as f64 } else { 0.0 };
        let payload = match making {
            Making::Garbled => b"no batch".to_vec(),
            Making::Sound | Making::NotKept => payload::batch(self.form, made_at, changes),
        };
        let message = Message { process: self.number, seq: self.made(), payload };
        self.states.push(self.cache.copies());
        self.has_lost |= making != Making::Sound;
        if making != Making::NotKept {
            self.kept.insert(message.seq, message.clone());
        }
        if self.kept.len() > self.keeps {
            self.kept.pop_first();
            self.has_lost = true;
        }
        message
    }

    /// Answers the next question, as far as its buffer goes.
    pub(crate) fn answer(&mut self) -> Option<(u64, Vec<Answer>)> {
        let question = self.questions.pop_front()?;
        let batches = self.kept.range(question.from..).map(|(_, message)| Answer::Batch(message.clone()));
        Some((question.client, batches.chain([Answer::End]).collect()))
    }
}
