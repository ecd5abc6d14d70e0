//! The real sequencer driving the real index for one stream: what the indexer's event thread does between its sockets and
//! the index, and no more. Its duties can be neglected on purpose, to see that the checks notice.

use std::collections::VecDeque;

use warmpath_kv::index::ClearCause;
use warmpath_kv::sequencer::Weight;
use warmpath_kv::{Action, Index, Input, Millis, Sequencer, SequencerConfig, StreamId, Trust, decode_batch};

use crate::engine::Message;

impl Weight for Message {
    fn bytes(&self) -> usize {
        self.payload.len()
    }

    fn made_at(&self) -> Option<f64> {
        warmpath_kv::made_at(&self.payload)
    }
}

/// A duty that is neglected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neglect {
    /// Blocks stay after a restart is known.
    ClearsAfterRestart,
    /// Blocks stay after a loss.
    ClearsAfterLoss,
    /// Answers to a question that was given up are taken for answers to the next.
    LateAnswers,
    /// What waits in the socket of a broken connection is read.
    OldMessages,
    /// The index is not told that a stream is not to be believed.
    Trust,
    /// The sequencer is not told of a payload that is no batch.
    Undecodable,
    /// The sequencer is not told that the cache is known again.
    Emptied,
    /// What was held before a connection is believed without a proof.
    Proof,
    /// A gap is not seen: every number is taken for the next one.
    Numbers,
}

/// What there is to do at the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    AskReplay { from: u64 },
    DropReplay,
}

pub(crate) struct Follower {
    pub(crate) id: StreamId,
    pub(crate) sequencer: Sequencer<Message>,
    /// Process and number of each batch applied since the stream was last cleared.
    pub(crate) applied: Vec<(u64, u64)>,
    last: Option<Message>,
    neglect: Option<Neglect>,
}

// === impl Follower ===

impl Follower {
    pub(crate) fn new(
        id: StreamId,
        config: SequencerConfig,
        neglect: Option<Neglect>,
        now: Millis,
        index: &mut Index,
    ) -> Self {
        index.add_stream(id, "m");
        let sequencer = Sequencer::new(config, now);
        Self { id, sequencer, applied: Vec::new(), last: None, neglect }
    }

    pub(crate) fn neglects(&self, duty: Neglect) -> bool {
        self.neglect == Some(duty)
    }

    pub(crate) fn admit(&mut self, input: Input<Message>, now: Millis, index: &mut Index) -> Vec<Request> {
        let input = self.perhaps_renumbered(input);
        let mut requests = Vec::new();
        let mut actions = VecDeque::new();
        self.sequencer.admit(input, now, &mut actions);
        while let Some(action) = actions.pop_front() {
            let outcome = match action {
                Action::Apply { seq, batch, origin } => {
                    self.applied.push((batch.process, seq));
                    let outcome = match decode_batch(&batch.payload) {
                        Ok(batch) => index.apply(self.id, &batch, origin).then_some(Input::Emptied { seq }),
                        Err(_) => Some(Input::Undecodable { seq }),
                    };
                    self.last = Some(batch);
                    outcome
                }
                Action::Compare { batch, .. } => {
                    let is_same = batch.made_at().is_some()
                        && self.last.as_ref().is_some_and(|last| last.payload == batch.payload);
                    Some(Input::Compared { is_same: is_same || self.neglects(Neglect::Proof) })
                }
                Action::Clear(cause) => {
                    self.clear(cause, index);
                    None
                }
                Action::AskReplay { from } => {
                    requests.push(Request::AskReplay { from });
                    None
                }
                Action::DropReplay => {
                    requests.push(Request::DropReplay);
                    None
                }
            };
            if let Some(outcome) = outcome.filter(|outcome| self.tells(outcome)) {
                self.sequencer.admit(outcome, now, &mut actions);
            }
        }
        if !self.neglects(Neglect::Trust) {
            index.set_trust(self.id, self.sequencer.trust());
        } else if self.sequencer.trust() == Trust::Live {
            index.set_trust(self.id, Trust::Live);
        }
        requests
    }

    fn clear(&mut self, cause: ClearCause, index: &mut Index) {
        self.applied.clear();
        let is_neglected = match cause {
            ClearCause::Restarted => self.neglects(Neglect::ClearsAfterRestart),
            ClearCause::EventsLost => self.neglects(Neglect::ClearsAfterLoss),
            ClearCause::EngineCleared | ClearCause::EndpointGone => false,
        };
        if !is_neglected {
            index.clear(self.id, cause);
        }
    }

    fn tells(&self, outcome: &Input<Message>) -> bool {
        match outcome {
            Input::Undecodable { .. } => !self.neglects(Neglect::Undecodable),
            Input::Compared { .. } => true,
            _ => !self.neglects(Neglect::Emptied),
        }
    }

    fn perhaps_renumbered(&mut self, input: Input<Message>) -> Input<Message> {
        match input {
            Input::Published { batch, .. } if self.neglects(Neglect::Numbers) => {
                Input::Published { seq: self.sequencer.last_applied().map_or(0, |last| last + 1), batch }
            }
            input => input,
        }
    }
}
