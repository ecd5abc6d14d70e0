//! Which endpoint made which response, for requests that go on from one or ask about it.
//!
//! An engine keeps the responses of `/v1/responses` in its own memory, so only the one that made a response can go on
//! from it. In: the keys of responses that reports and peers tell. Out: the place of a key. Pure; the
//! [`Books`](crate::books::Books) own it. A place that is gone takes its responses with it: its successor, at the same
//! address, is another place.
//!
//! Bounded: the oldest answer goes when it is full or has outlived its time. Nothing is made of a key that is not known.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use warmpath_kv::{Millis, StreamId};

/// Responses remembered: at ten responses a second, those of seven hours; with map and queue about 15 MB when full.
pub const ANSWERS_MAX: usize = 1 << 18;
/// How long one is remembered. Engines keep theirs until they restart; a conversation that is picked up a day later is
/// rare, and another engine would only refuse it.
pub const ANSWER_LIFETIME_MS: u64 = 86_400_000;

/// What stands for a response's id in the contract. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResponseKey(u64);

/// All that is remembered.
#[derive(Debug)]
pub struct Answers {
    /// The number of each key's entry.
    numbers: HashMap<ResponseKey, u64>,
    /// Oldest first, numbered in the order of their arrival.
    entries: VecDeque<Entry>,
    /// Number of the oldest entry.
    oldest: u64,
    capacity: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Millis,
    key: ResponseKey,
    place: StreamId,
}

// === impl ResponseKey ===

impl ResponseKey {
    /// None: 0, which stands for no response.
    pub fn new(key: u64) -> Option<Self> {
        (key != 0).then_some(Self(key))
    }

    pub fn get(self) -> u64 {
        self.0
    }
}

// === impl Answers ===

impl Answers {
    /// An empty memory for at most `capacity` responses.
    pub fn new(capacity: usize) -> Self {
        Self { numbers: HashMap::new(), entries: VecDeque::new(), oldest: 0, capacity }
    }

    /// Remembers that the endpoint of `place` made a response. A response is made once: where it is known already, the
    /// newer place counts, and its time stays.
    pub fn note(&mut self, key: ResponseKey, place: StreamId, now: Millis) {
        match self.numbers.get(&key).and_then(|number| usize::try_from(number - self.oldest).ok()) {
            Some(known) => {
                if let Some(entry) = self.entries.get_mut(known) {
                    entry.place = place;
                }
            }
            None => {
                if self.entries.len() >= self.capacity {
                    self.drop_oldest();
                }
                self.numbers.insert(key, self.all().end);
                self.entries.push_back(Entry { at: now, key, place });
            }
        }
        while self.entries.front().is_some_and(|oldest| now.since(oldest.at) > ANSWER_LIFETIME_MS) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.oldest += 1;
            self.numbers.remove(&entry.key);
        }
    }

    /// The place of the endpoint that made it.
    pub fn place(&self, key: ResponseKey) -> Option<StreamId> {
        let number = self.numbers.get(&key)? - self.oldest;
        self.entries.get(usize::try_from(number).ok()?).map(|entry| entry.place)
    }

    /// The numbers of everything remembered. A number is never given again.
    pub fn all(&self) -> Range<u64> {
        self.oldest..self.oldest + self.entries.len() as u64
    }

    /// Those of these numbers that are still remembered, oldest first.
    pub fn slice(&self, numbers: Range<u64>) -> impl Iterator<Item = (ResponseKey, StreamId)> {
        let at = |number: u64| {
            let behind = usize::try_from(number.saturating_sub(self.oldest)).unwrap_or(usize::MAX);
            behind.min(self.entries.len())
        };
        let (from, to) = (at(numbers.start), at(numbers.end));
        self.entries.range(from.min(to)..to).map(|entry| (entry.key, entry.place))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> ResponseKey {
        ResponseKey::new(number).unwrap()
    }

    fn all(answers: &Answers) -> Vec<(ResponseKey, StreamId)> {
        answers.slice(answers.all()).collect()
    }

    #[test]
    fn the_place_of_a_response_is_known_until_newer_ones_take_its_room() {
        let mut answers = Answers::new(2);
        for number in 1..=3 {
            answers.note(key(number), StreamId(number as u32), Millis(number));
        }
        assert_eq!((answers.place(key(1)), answers.len()), (None, 2));
        assert_eq!(answers.place(key(2)), Some(StreamId(2)));
        assert_eq!(all(&answers), [(key(2), StreamId(2)), (key(3), StreamId(3))]);
        // Told again, by a peer: it takes no more room, and does not grow younger.
        answers.note(key(2), StreamId(9), Millis(4));
        assert_eq!((answers.place(key(2)), answers.len()), (Some(StreamId(9)), 2));
        answers.note(key(4), StreamId(4), Millis(5));
        assert_eq!(answers.place(key(2)), None);
        assert_eq!(ResponseKey::new(0), None);
    }

    #[test]
    fn old_responses_are_forgotten() {
        let mut answers = Answers::new(10);
        answers.note(key(1), StreamId(1), Millis(0));
        answers.note(key(2), StreamId(2), Millis(ANSWER_LIFETIME_MS));
        assert_eq!(answers.len(), 2);
        answers.note(key(3), StreamId(3), Millis(ANSWER_LIFETIME_MS + 1));
        assert_eq!(all(&answers), [(key(2), StreamId(2)), (key(3), StreamId(3))]);
    }

    /// Numbers stay what they are while older entries go, so that all can be read a few at a time.
    #[test]
    fn slices_by_number_skip_what_is_gone_and_repeat_nothing() {
        let mut answers = Answers::new(4);
        for number in 1..=4 {
            answers.note(key(number), StreamId(number as u32), Millis(0));
        }
        let wanted = answers.all();
        let keys =
            |answers: &Answers, numbers| answers.slice(numbers).map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(keys(&answers, wanted.start..wanted.start + 1), [key(1)]);
        for number in 5..=6 {
            answers.note(key(number), StreamId(9), Millis(1));
        }
        assert_eq!(keys(&answers, wanted.start + 1..wanted.start + 3), [key(3)], "2 is gone meanwhile");
        assert_eq!(keys(&answers, wanted.start + 3..wanted.end), [key(4)]);
        assert_eq!(keys(&answers, wanted.end..u64::MAX), [key(5), key(6)]);
        assert_eq!(keys(&answers, 0..wanted.start), []);
    }
}
