//! Numbering, the replay buffer and the order of sending, with faults. Pure: time is an argument.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::faults::BatchFate;

/// A numbered batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) number: u64,
    pub(super) payload: Arc<[u8]>,
}

/// The messages of one rank since its start.
#[derive(Debug)]
pub(super) struct Stream {
    next: u64,
    kept_max: usize,
    kept: VecDeque<Message>,
    /// To be sent, each not before its time and not before those ahead of it.
    outgoing: VecDeque<(Instant, Message)>,
    held_back: Option<Message>,
}

impl Stream {
    pub(super) fn new(kept_max: usize) -> Self {
        Self { next: 0, kept_max, kept: VecDeque::new(), outgoing: VecDeque::new(), held_back: None }
    }

    /// Numbers a batch, keeps it for replay and plans its sending.
    pub(super) fn push(&mut self, payload: Vec<u8>, fate: BatchFate, now: Instant) {
        if fate == BatchFate::Ignore {
            return;
        }
        let message = Message { number: self.next, payload: payload.into() };
        self.next += 1;
        if fate != BatchFate::Lose {
            self.kept.push_back(message.clone());
            if self.kept.len() > self.kept_max {
                self.kept.pop_front();
            }
        }
        match fate {
            BatchFate::Drop | BatchFate::Lose | BatchFate::Ignore => {}
            BatchFate::HoldBack if self.held_back.is_none() => self.held_back = Some(message),
            BatchFate::Send | BatchFate::HoldBack => self.plan(now, message),
            BatchFate::Duplicate => {
                self.plan(now, message.clone());
                self.plan(now, message);
            }
            BatchFate::Delay(by) => self.plan(now + by, message),
        }
    }

    /// What can be sent at `now`, in order.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Message> {
        let due = self.outgoing.iter().take_while(|(at, _)| *at <= now).count();
        self.outgoing.drain(..due).map(|(_, message)| message).collect()
    }

    /// When the first planned message is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.outgoing.front().map(|(at, _)| *at)
    }

    /// The kept messages from a number on, oldest first.
    pub(super) fn kept_from(&self, start: u64) -> impl Iterator<Item = &Message> {
        self.kept.iter().filter(move |message| message.number >= start)
    }

    /// Plans a message, and behind it the one that was held back for it.
    fn plan(&mut self, at: Instant, message: Message) {
        let follower = self.held_back.take();
        for message in std::iter::once(message).chain(follower) {
            self.outgoing.push_back((at, message));
        }
    }
}
