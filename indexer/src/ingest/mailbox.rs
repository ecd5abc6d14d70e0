//! What waits for the event thread, which takes all of it at each turn.
//!
//! Nothing is refused for want of room, since an index without a stream that is wanted, or with one that is not, would
//! stay wrong. What waits is bounded by what it is about, however long the thread is busy:
//!
//! | what | at most |
//! |---|---|
//! | streams to follow | those that are wanted; one that is taken back before the thread saw it is not told at all |
//! | streams to forget | those that the thread follows |
//! | what was found out about engines | each kind once for a stream that is followed |
//! | who waits until all of this is taken | those who hold all streams, one at a time |
//! | questions for images | [`QUESTIONS_MAX`]; a further one gets no image, as of a stream that is not live |

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use warmpath_kv::StreamId;

use super::{IngestError, Resumable, StreamSpec, Taken};

/// Images asked for at the same time: one by the saver, and one by each indexer that starts.
const QUESTIONS_MAX: usize = 256;

/// Shared by those who tell the thread and the thread.
#[derive(Debug, Default)]
pub(super) struct Mailbox(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    mail: Mail,
    /// What the thread follows once it has taken all mail so far, but for what is to be followed in `mail`.
    followed: BTreeSet<StreamId>,
    is_closed: bool,
}

/// All that waits. Streams are forgotten before others are followed; an id that is used again is forgotten before.
#[derive(Debug, Default)]
pub(super) struct Mail {
    pub(super) forget: BTreeSet<StreamId>,
    pub(super) follow: BTreeMap<StreamId, (StreamSpec, Option<Resumable>)>,
    /// In the order in which it was found.
    pub(super) found: BTreeMap<StreamId, Vec<Found>>,
    pub(super) questions: Vec<Question>,
    /// To be told when all of this is done.
    pub(super) waiting: Vec<oneshot::Sender<()>>,
    pub(super) is_end: bool,
}

/// What was found out about a stream's engine elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It computed blocks and told of none.
    Contradicted,
    /// It sleeps, so its cache is empty.
    Asleep,
}

/// For the image of a stream; to be answered with nothing where it is not live.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) stream: StreamId,
    pub(super) answer: oneshot::Sender<Option<Taken>>,
}

// === impl Mailbox ===

impl Mailbox {
    pub(super) fn follow(&self, spec: StreamSpec, resumed: Option<Resumable>) -> Result<(), IngestError> {
        self.put(|state| {
            state.mail.follow.insert(spec.id, (spec, resumed));
        })
    }

    pub(super) fn forget(&self, id: StreamId) -> Result<(), IngestError> {
        self.put(|state| {
            state.mail.follow.remove(&id);
            state.mail.found.remove(&id);
            state.mail.questions.retain(|question| question.stream != id);
            if state.followed.remove(&id) {
                state.mail.forget.insert(id);
            }
        })
    }

    /// Of a stream that is not followed nothing is kept.
    pub(super) fn tell(&self, id: StreamId, found: Found) -> Result<(), IngestError> {
        self.put(|state| {
            if state.is_wanted(id) {
                let of_stream = state.mail.found.entry(id).or_default();
                if !of_stream.contains(&found) {
                    of_stream.push(found);
                }
            }
        })
    }

    pub(super) fn ask(&self, question: Question) -> Result<(), IngestError> {
        self.put(|state| {
            if state.is_wanted(question.stream) && state.mail.questions.len() < QUESTIONS_MAX {
                state.mail.questions.push(question);
            }
        })
    }

    /// Has `done` told when the thread has done all that was put before.
    pub(super) fn tell_when_done(&self, done: oneshot::Sender<()>) -> Result<(), IngestError> {
        self.put(|state| state.mail.waiting.push(done))
    }

    /// Tells the thread to end.
    pub(super) fn end(&self) {
        self.0.lock().mail.is_end = true;
    }

    /// All that has come since the last time.
    pub(super) fn take(&self) -> Mail {
        let State { mail, followed, .. } = &mut *self.0.lock();
        followed.extend(mail.follow.keys());
        std::mem::take(mail)
    }

    /// Nobody takes anything out any more.
    pub(super) fn close(&self) {
        *self.0.lock() = State { is_closed: true, ..State::default() };
    }

    fn put(&self, change: impl FnOnce(&mut State)) -> Result<(), IngestError> {
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(IngestError::Ended);
        }
        change(&mut state);
        Ok(())
    }
}

// === impl State ===

impl State {
    fn is_wanted(&self, id: StreamId) -> bool {
        self.followed.contains(&id) || self.mail.follow.contains_key(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than a queue of any length held before.
    const MANY: u32 = 100_000;

    fn spec(id: u32) -> StreamSpec {
        StreamSpec::of_nobody(StreamId(id))
    }

    fn ids<'a>(streams: impl IntoIterator<Item = &'a StreamId>) -> Vec<u32> {
        streams.into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn however_many_changes_wait_none_is_lost() {
        let mailbox = Mailbox::default();
        for id in 0..MANY {
            mailbox.follow(spec(id), None).unwrap();
        }
        let mail = mailbox.take();
        assert_eq!(mail.follow.len(), MANY as usize);
        assert!(mailbox.take().follow.is_empty(), "told once");
        for id in 0..MANY {
            mailbox.forget(StreamId(id)).unwrap();
            mailbox.follow(spec(MANY + id), None).unwrap();
        }
        let mail = mailbox.take();
        assert_eq!((mail.forget.len(), mail.follow.len()), (MANY as usize, MANY as usize));
        assert!(mail.follow.contains_key(&StreamId(2 * MANY - 1)) && mail.forget.contains(&StreamId(0)));
    }

    /// A fleet that changes all the time while the thread is busy.
    #[test]
    fn what_waits_is_no_more_than_what_is_wanted_and_what_is_followed() {
        let mailbox = Mailbox::default();
        mailbox.follow(spec(0), None).unwrap();
        mailbox.take();
        let mut asked = Vec::new();
        for id in 1..1000 {
            mailbox.follow(spec(id), None).unwrap();
            for stream in [0, id, 5000] {
                mailbox.tell(StreamId(stream), Found::Contradicted).unwrap();
                mailbox.tell(StreamId(stream), Found::Asleep).unwrap();
                let (answer, answered) = oneshot::channel();
                mailbox.ask(Question { stream: StreamId(stream), answer }).unwrap();
                asked.push(answered);
            }
            if id < 999 {
                mailbox.forget(StreamId(id)).unwrap();
                mailbox.forget(StreamId(id)).unwrap();
            }
        }
        let mail = mailbox.take();
        assert_eq!((ids(&mail.forget), ids(mail.follow.keys())), (vec![], vec![999]));
        assert_eq!(ids(mail.found.keys()), [0, 999]);
        assert!(mail.found.values().all(|found| *found == [Found::Contradicted, Found::Asleep]));
        assert_eq!(mail.questions.len(), QUESTIONS_MAX);
        let waiting = asked.iter_mut().filter_map(|answered| answered.try_recv().err());
        let waiting = waiting.filter(|error| *error == oneshot::error::TryRecvError::Empty).count();
        assert_eq!(waiting, QUESTIONS_MAX, "the others know that nothing will come");
    }

    #[test]
    fn whoever_tells_a_thread_that_has_ended_is_told() {
        let mailbox = Mailbox::default();
        let (answer, mut answered) = oneshot::channel();
        mailbox.follow(spec(1), None).unwrap();
        mailbox.ask(Question { stream: StreamId(1), answer }).unwrap();
        mailbox.close();
        assert_eq!(answered.try_recv().err(), Some(oneshot::error::TryRecvError::Closed));
        assert!(matches!(mailbox.follow(spec(2), None), Err(IngestError::Ended)));
        assert!(matches!(mailbox.forget(StreamId(1)), Err(IngestError::Ended)));
        assert!(mailbox.take().follow.is_empty());
    }
}
