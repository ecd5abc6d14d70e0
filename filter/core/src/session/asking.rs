//! A request while the indexer is asked: it is held, and each input may end that.

use crate::limits::{TIMER_SLACK_DIVISOR, TIMER_SLACK_US};
use crate::outcome::Reason;
use crate::worker::Worker;

use super::exchange::{Effect, Failure, Input};
use super::{Session, State, Step};

/// A question that has no answer yet.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    /// The call, once it was sent.
    pub(super) call: Option<u32>,
    /// When the question was made: at the end of the body, where it has one.
    pub(super) since_us: u64,
    /// Chooses the endpoint where no answer comes.
    pub(super) affinity: u64,
    /// Takes long to answer whoever is asked.
    pub(super) is_slow: bool,
}

// === impl Asking ===

impl Asking {
    /// No answer came within the deadline.
    fn was_late(&self, worker: &mut Worker, now_us: u64) {
        if self.is_slow { worker.circuit.abandoned() } else { worker.circuit.failed(now_us) }
    }
}

// === impl Session ===

impl Session {
    pub(super) fn asking<'a>(
        &self,
        asking: Asking,
        input: Input<'a>,
        worker: &mut Worker,
        now_us: u64,
    ) -> Step<'a> {
        let waited_us = now_us.saturating_sub(asking.since_us);
        let late = waited_us >= worker.config.timeout_us;
        // The proxy's timer for the call may go off a little before ours would.
        let slack_us = TIMER_SLACK_US.max(worker.config.timeout_us / TIMER_SLACK_DIVISOR);
        let about_late = waited_us + slack_us >= worker.config.timeout_us;
        match input {
            Input::Asked(call) => (State::Asking(Asking { call: Some(call), ..asking }), vec![Effect::Hold]),
            Input::Reply(reply) => {
                worker.circuit.answered();
                resumed_if(asking.call.is_some(), self.route(&asking, reply, worker, now_us))
            }
            Input::Failure(failure) => {
                match failure {
                    Failure::Rejected => worker.circuit.answered(),
                    Failure::Unavailable if about_late => asking.was_late(worker, now_us),
                    Failure::Unavailable | Failure::BadReply => worker.circuit.failed(now_us),
                }
                let reason = match failure {
                    Failure::Rejected => Reason::Rejected,
                    Failure::BadReply => Reason::BadReply,
                    Failure::Unavailable if about_late => Reason::Deadline,
                    Failure::Unavailable => Reason::Unavailable,
                };
                resumed_if(asking.call.is_some(), self.fall_back(&asking, reason, worker, now_us))
            }
            Input::Tick if late => {
                asking.was_late(worker, now_us);
                let (state, mut effects) = resumed(self.fall_back(&asking, Reason::Deadline, worker, now_us));
                effects.splice(0..0, asking.call.map(Effect::Cancel));
                (state, effects)
            }
            Input::AnswerHeaders { status, endpoint, ends } => {
                worker.circuit.abandoned();
                let (state, mut effects) = self.answer_early(status, endpoint, ends, worker);
                effects.splice(0..0, asking.call.map(Effect::Cancel));
                (state, effects)
            }
            Input::Log(ending) => {
                worker.circuit.abandoned();
                self.gone(ending, worker, now_us)
            }
            Input::BodyChunk { .. } | Input::Trailers | Input::Body(_) | Input::Headers(_) => {
                (State::Asking(asking), vec![Effect::Hold])
            }
            Input::Tick | Input::AnswerChunk { .. } | Input::AnswerTrailers => {
                (State::Asking(asking), vec![])
            }
        }
    }
}

/// Lets a request go on that was held by an earlier callback.
pub(super) fn resumed(step: Step<'_>) -> Step<'_> {
    resumed_if(true, step)
}

/// A request that was held by an earlier callback must be told to go on; one that is just being looked at goes on when
/// the callback returns.
fn resumed_if(held: bool, (state, mut effects): Step<'_>) -> Step<'_> {
    if held {
        effects.push(Effect::Resume);
    }
    (state, effects)
}
