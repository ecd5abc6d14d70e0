//! Which endpoint made which response, for requests that go on from one or ask about it.
//!
//! An engine keeps the responses of `/v1/responses` in its own memory, so only the one that made a response can go on
//! from it. In: the keys of responses that reports and peers tell. Out: the place of a key. Pure; the
//! [`Books`](crate::books::Books) own it. A place that is gone takes its responses with it: its successor, at the same
//! address, is another place.
//!
//! Bounded: the oldest answer goes when it is full or has outlived its time. Nothing is made of a key that is not known.

use std::collections::{HashMap, VecDeque};

use warmpath_kv::{Millis, StreamId};

/// Responses remembered: at ten responses a second, those of seven hours; with map and queue about 14 MB when full.
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
    places: HashMap<ResponseKey, StreamId>,
    /// Every key of the map once, oldest first.
    order: VecDeque<(Millis, ResponseKey)>,
    capacity: usize,
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
        Self { places: HashMap::new(), order: VecDeque::new(), capacity }
    }

    /// Remembers that the endpoint of `place` made a response. A response is made once: where it is known already, the
    /// newer place counts, and its time stays.
    pub fn note(&mut self, key: ResponseKey, place: StreamId, now: Millis) {
        if self.places.insert(key, place).is_none() {
            self.order.push_back((now, key));
        }
        while let Some((at, oldest)) = self.order.front().copied() {
            let is_old = now.since(at) > ANSWER_LIFETIME_MS;
            if self.order.len() <= self.capacity && !is_old {
                break;
            }
            self.order.pop_front();
            self.places.remove(&oldest);
        }
    }

    /// The place of the endpoint that made it.
    pub fn place(&self, key: ResponseKey) -> Option<StreamId> {
        self.places.get(&key).copied()
    }

    /// Everything remembered, oldest first.
    pub fn all(&self) -> impl Iterator<Item = (ResponseKey, StreamId)> {
        self.order.iter().filter_map(|(_, key)| Some((*key, self.place(*key)?)))
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> ResponseKey {
        ResponseKey::new(number).unwrap()
    }

    #[test]
    fn the_place_of_a_response_is_known_until_newer_ones_take_its_room() {
        let mut answers = Answers::new(2);
        for number in 1..=3 {
            answers.note(key(number), StreamId(number as u32), Millis(number));
        }
        assert_eq!((answers.place(key(1)), answers.len()), (None, 2));
        assert_eq!(answers.place(key(2)), Some(StreamId(2)));
        assert_eq!(answers.all().collect::<Vec<_>>(), [(key(2), StreamId(2)), (key(3), StreamId(3))]);
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
        assert_eq!(answers.all().collect::<Vec<_>>(), [(key(2), StreamId(2)), (key(3), StreamId(3))]);
    }
}
