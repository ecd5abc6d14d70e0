//! One rank of an engine, all processes that it ever was, and the stream that follows it.

use warmpath_kv::{Index, Input, Millis, Trust};

use crate::engine::{Answer, Making, Message, Process};
use crate::follower::{Follower, Neglect, Request};
use crate::rng::Rng;
use crate::wire::{News, Wire};

pub(crate) struct Rank {
    /// The last one is the current one.
    pub(crate) processes: Vec<Process>,
    pub(crate) is_down: bool,
    pub(crate) wire: Wire,
    pub(crate) follower: Follower,
    keeps: usize,
    /// Batches published before the subscription reaches the publisher.
    unheard: usize,
    /// No news of any connection was read.
    is_fresh: bool,
    /// The process is not known of yet, and does nothing until it is.
    is_mute: bool,
    /// The process that is known to be the current one.
    pub(crate) known: u64,
}

/// What a rank's stream works with.
pub(crate) struct Turn<'a> {
    pub(crate) index: &'a mut Index,
    pub(crate) now: Millis,
    pub(crate) rng: &'a mut Rng,
}

// === impl Rank ===

impl Rank {
    pub(crate) fn new(follower: Follower, keeps: usize, rng: &mut Rng) -> Self {
        let mut rank = Self {
            processes: vec![Process::start(0, keeps, rng)],
            is_down: false,
            wire: Wire::default(),
            follower,
            keeps,
            unheard: 0,
            is_fresh: true,
            is_mute: false,
            known: 0,
        };
        if rng.one_in(2) {
            (0..rng.below(12)).for_each(|_| drop(rank.process().work(Making::Sound, rng)));
        }
        rank.connect(rng);
        rank
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        self.processes.last_mut().expect("there is always one")
    }

    /// The process of this number.
    pub(crate) fn process_of(&self, number: u64) -> &Process {
        &self.processes[usize::try_from(number).expect("few")]
    }

    pub(crate) fn is_believed(&self) -> Trust {
        self.follower.sequencer.trust()
    }

    // --- the engine ---

    /// The engine makes a batch, and the network does its worst.
    pub(crate) fn work(&mut self, is_peaceful: bool, rng: &mut Rng) {
        if self.is_down || self.is_mute {
            return;
        }
        let making = match rng.below(200) {
            0 if !is_peaceful => Making::NotKept,
            1 if !is_peaceful => Making::Garbled,
            _ => Making::Sound,
        };
        let message = self.process().work(making, rng);
        if is_peaceful {
            self.unheard = 0;
            self.send(message);
        } else {
            self.send_perhaps(message, rng);
        }
    }

    pub(crate) fn empty(&mut self) {
        if !self.is_down && !self.is_mute {
            let message = self.process().empty();
            self.send(message);
        }
    }

    fn send(&mut self, message: Message) {
        if self.wire.is_connected && self.unheard == 0 {
            self.wire.messages.push_back(message);
        }
        self.unheard = self.unheard.saturating_sub(1);
    }

    fn send_perhaps(&mut self, message: Message, rng: &mut Rng) {
        match rng.below(30) {
            0..3 => {}
            3 => {
                self.send(message.clone());
                self.send(message);
            }
            4 => {
                self.send(message);
                let last = self.wire.messages.len();
                if last > 1 {
                    self.wire.messages.swap(last - 1, last - 2);
                }
            }
            _ => self.send(message),
        }
    }

    pub(crate) fn crash(&mut self) {
        self.is_down = true;
        self.process().questions.clear();
        self.wire.disconnect();
    }

    /// Another process, on the same address.
    pub(crate) fn boot(&mut self, rng: &mut Rng) {
        if std::mem::take(&mut self.is_down) {
            self.begin_process(rng);
            self.connect(rng);
        }
    }

    pub(crate) fn break_connection(&mut self, rng: &mut Rng) {
        if !self.is_down {
            self.wire.disconnect();
            self.process().questions.clear();
            self.connect(rng);
        }
    }

    /// Another process behind a proxy that keeps the connection. Its lower numbers tell of it, so its first batch arrives;
    /// or it is idle, and a probe of the replay tells.
    pub(crate) fn restart_silently(&mut self, has_replay: bool, turn: &mut Turn<'_>) {
        self.read(usize::MAX, turn);
        if self.is_down || self.is_mute || self.unheard > 0 || self.wire.last_read.is_none() {
            return;
        }
        let may_be_idle =
            has_replay && self.is_believed() == Trust::Live && !self.follower.applied.is_empty();
        self.begin_process(turn.rng);
        if may_be_idle && turn.rng.one_in(2) {
            self.is_mute = true;
            return;
        }
        let message = self.process().work(Making::Sound, turn.rng);
        self.send(message);
        self.known = self.process().number;
        self.read(usize::MAX, turn);
    }

    fn begin_process(&mut self, rng: &mut Rng) {
        let number = u64::try_from(self.processes.len()).expect("few");
        self.processes.push(Process::start(number, self.keeps, rng));
    }

    fn connect(&mut self, rng: &mut Rng) {
        self.wire.connect();
        self.unheard = if rng.one_in(3) { rng.below(4) } else { 0 };
    }

    /// The engine answers a question; of the answers some may be lost, wherever they stand.
    pub(crate) fn answer(&mut self, is_peaceful: bool, rng: &mut Rng) -> bool {
        if self.is_down {
            return false;
        }
        let Some((client, answers)) = self.process().answer() else { return false };
        let loss = if is_peaceful || rng.one_in(2) { usize::MAX } else { 2 + rng.below(10) };
        for (position, answer) in answers.into_iter().enumerate() {
            if loss < usize::MAX && rng.one_in(loss) {
                // A replay that begins late looks like a buffer that is too short.
                self.process().has_lost |= position == 0;
            } else {
                self.wire.answers.push_back((client, answer));
            }
        }
        true
    }

    // --- the subscriber ---

    /// Reads news of the connection, and then messages.
    pub(crate) fn read(&mut self, messages: usize, turn: &mut Turn<'_>) {
        // The first message of the first connection may overtake the news of it.
        let is_first = self.wire.news == [News::Connected] && self.wire.last_read.is_none() && self.is_fresh;
        if !(is_first && turn.rng.one_in(4)) {
            self.read_news(turn);
        }
        for _ in 0..messages {
            let Some(message) = self.wire.messages.pop_front() else { return };
            let seq = message.seq;
            self.admit(Input::Published { seq, batch: message }, turn);
            self.wire.last_read = Some(seq);
        }
    }

    fn read_news(&mut self, turn: &mut Turn<'_>) {
        self.is_fresh = false;
        while let Some(news) = self.wire.news.pop_front() {
            match news {
                News::Connected => {
                    self.learn();
                    self.admit(Input::Connected, turn);
                }
                News::Disconnected => {
                    if !self.follower.neglects(Neglect::OldMessages) {
                        self.wire.messages.clear();
                    }
                    self.wire.client = None;
                    self.admit(Input::Disconnected, turn);
                }
            }
            self.wire.last_read = None;
        }
    }

    pub(crate) fn read_answers(&mut self, most: usize, turn: &mut Turn<'_>) {
        self.read_news(turn);
        for _ in 0..most {
            let Some((client, answer)) = self.wire.answers.pop_front() else { return };
            if self.wire.client != Some(client) && !self.follower.neglects(Neglect::LateAnswers) {
                continue;
            }
            let input = match answer {
                Answer::Batch(message) => Input::Replayed { seq: message.seq, batch: message },
                Answer::End => {
                    self.wire.client = None;
                    Input::ReplayEnded
                }
            };
            self.admit(input, turn);
        }
    }

    /// Every question is answered, and all is read.
    pub(crate) fn catch_up(&mut self, turn: &mut Turn<'_>) {
        while self.answer(true, turn.rng) {}
        self.read(usize::MAX, turn);
        self.read_answers(usize::MAX, turn);
    }

    pub(crate) fn tick(&mut self, turn: &mut Turn<'_>) {
        self.admit(Input::Tick, turn);
    }

    fn admit(&mut self, input: Input<Message>, turn: &mut Turn<'_>) {
        let restarts = self.follower.sequencer.stats().restarts;
        for request in self.follower.admit(input, turn.now, turn.index) {
            match request {
                Request::AskReplay { from } => {
                    let client = self.wire.ask();
                    if !self.is_down {
                        self.process().questions.push_back(crate::engine::Question { client, from });
                    }
                }
                Request::DropReplay => self.wire.client = None,
            }
        }
        if self.follower.sequencer.stats().restarts > restarts {
            self.wire.last_read = None;
            self.learn();
        }
    }

    /// That there is another process is known now.
    fn learn(&mut self) {
        self.is_mute = false;
        self.known = self.process().number;
    }
}
