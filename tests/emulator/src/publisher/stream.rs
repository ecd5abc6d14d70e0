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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Pushes one batch per fate and gives the numbers sent at once, and those kept.
    fn after(fates: &[BatchFate]) -> (Vec<u64>, Vec<u64>) {
        let now = Instant::now();
        let mut stream = Stream::new(10);
        fates.iter().for_each(|fate| stream.push(vec![], *fate, now));
        let sent = stream.take_due(now).iter().map(|message| message.number).collect();
        let kept = stream.kept_from(0).map(|message| message.number).collect();
        (sent, kept)
    }

    #[test]
    fn each_fate_sends_and_keeps_what_it_says() {
        use BatchFate::{Drop, Duplicate, HoldBack, Ignore, Lose, Send};
        let cases: [(&[BatchFate], &[u64], &[u64]); 7] = [
            (&[Send, Send], &[0, 1], &[0, 1]),
            (&[Drop, Send], &[1], &[0, 1]),
            (&[Lose, Send], &[1], &[1]),
            (&[Duplicate, Send], &[0, 0, 1], &[0, 1]),
            (&[HoldBack, Send, Send], &[1, 0, 2], &[0, 1, 2]),
            (&[HoldBack, HoldBack, Send], &[1, 0, 2], &[0, 1, 2]),
            (&[Send, Ignore, Send], &[0, 1], &[0, 1]),
        ];
        for (fates, sent, kept) in cases {
            assert_eq!(after(fates), (sent.to_vec(), kept.to_vec()), "{fates:?}");
        }
    }

    #[test]
    fn a_late_batch_holds_up_those_behind_it() {
        let now = Instant::now();
        let late = Duration::from_millis(50);
        let mut stream = Stream::new(10);
        stream.push(vec![], BatchFate::Delay(late), now);
        stream.push(vec![], BatchFate::Send, now);
        assert!(stream.take_due(now).is_empty());
        assert_eq!(stream.next_due(), Some(now + late));
        let sent: Vec<u64> = stream.take_due(now + late).iter().map(|message| message.number).collect();
        assert_eq!(sent, [0, 1]);
    }

    #[test]
    fn the_buffer_keeps_the_newest() {
        let now = Instant::now();
        let mut stream = Stream::new(3);
        (0..5).for_each(|_| stream.push(vec![], BatchFate::Send, now));
        let kept = |from| stream.kept_from(from).map(|message| message.number).collect::<Vec<_>>();
        assert_eq!(kept(0), [2, 3, 4]);
        assert_eq!(kept(4), [4]);
        assert!(kept(5).is_empty());
    }
}
