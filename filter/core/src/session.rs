//! One request in the proxy, from its headers to its log entry: a state machine without I/O and clock.
//!
//! ```text
//!                 Headers ──────────┐ not our path or method, no body,
//!   a stored       │    │           │ too large, encoded, multipart, waits
//!   response       │    │ a body    │
//!                  │    ▼           │
//!                  │ Collecting ────┤ outgrew the limit, unreadable,
//!                  │    │ all of it │ never came, answered early
//!                  ▼    ▼           │
//!                  Asking ──────────┤ no answer and no endpoint known
//!                   │  │ no answer  │
//!                   │  ▼            ▼
//!                   │ FallenBack  PassedThrough
//!             reply │  │            │
//!                   ▼  │            │
//!                Routed┤            │
//!                      ▼            │
//!                  Answering ◀──────┘ the headers of the answer
//!                      │
//!                      ▼ log (from every state)
//!                    Done
//! ```
//!
//! [`Session::step`] is the only transition. An input that does not belong to the state changes nothing and lets the
//! request go on; a reply that comes too late is reported as ended at once, so that its reservation goes. From
//! `Collecting` to `Asking` the request is held; [`Session::due_us`] says when a tick must end that even if the proxy
//! never calls back.

mod answer;
mod asking;
mod exchange;
mod fate;

pub use exchange::{Ask, Candidate, Effect, Ending, Failure, Input, Reply, Route, Settled, Window};

use crate::body::{self, Collect};
use crate::headers::RequestHead;
use crate::limits::{BODY_WAIT_MS, SLOW_BODY_BYTES};
use crate::outcome::{Outcome, Reason};
use crate::path::{KnownPath, Target};
use crate::request::{self, PromptRequest};
use crate::worker::Worker;
use answer::{Answer, Reads};
use asking::{Asking, resumed};
use fate::Fate;

/// Effects of one input at most.
pub const EFFECTS_MAX: usize = 4;

/// A state together with what came of reaching it.
type Step<'a> = (State, Vec<Effect<'a>>);

/// One request.
#[derive(Clone, Debug)]
pub struct Session {
    state: State,
    started_us: u64,
    /// What its answer will be read for.
    reads: Reads,
    /// As told by [`RequestHead::group`].
    group: u64,
    /// As told by [`RequestHead::policy`].
    policy: Option<&'static str>,
}

#[derive(Clone, Debug)]
enum State {
    Headers,
    Collecting { path: KnownPath, bytes: usize },
    Asking(Asking),
    Routed(Fate),
    FallenBack(Fate),
    PassedThrough(Fate),
    Answering(Answer),
    Done,
}

/// Names of the states, for tests and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateName {
    /// Nothing came yet.
    Headers,
    /// The body is coming.
    Collecting,
    /// The indexer is asked.
    Asking,
    /// The indexer decided.
    Routed,
    /// The ring decided.
    FallenBack,
    /// The proxy decides.
    PassedThrough,
    /// The answer is coming.
    Answering,
    /// It is over.
    Done,
}

impl Session {
    /// A request whose headers will come next.
    pub fn new(now_us: u64) -> Self {
        Self { state: State::Headers, started_us: now_us, reads: Reads::Usage, group: 0, policy: None }
    }

    /// Where it is.
    pub fn state(&self) -> StateName {
        match self.state {
            State::Headers => StateName::Headers,
            State::Collecting { .. } => StateName::Collecting,
            State::Asking(_) => StateName::Asking,
            State::Routed(_) => StateName::Routed,
            State::FallenBack(_) => StateName::FallenBack,
            State::PassedThrough(_) => StateName::PassedThrough,
            State::Answering(_) => StateName::Answering,
            State::Done => StateName::Done,
        }
    }

    /// What it wants to see of the next chunk of the answer's body; none: the chunk may pass unseen.
    pub fn window(&self) -> Option<Window> {
        match &self.state {
            State::Answering(answer) => answer.window(),
            _ => None,
        }
    }

    /// When it wants a [`Input::Tick`], if at all.
    pub fn due_us(&self, worker: &Worker) -> Option<u64> {
        match &self.state {
            State::Collecting { bytes: 0, .. } => Some(self.started_us + BODY_WAIT_MS * 1000),
            State::Asking(asking) => Some(asking.since_us + worker.config.timeout_us),
            State::Routed(fate) => fate.due_us(),
            State::Answering(answer) => answer.due_us(),
            State::Headers
            | State::Collecting { .. }
            | State::FallenBack(_)
            | State::PassedThrough(_)
            | State::Done => None,
        }
    }

    /// The transition: what happened → what must be done.
    pub fn step<'a>(&mut self, input: Input<'a>, worker: &mut Worker, now_us: u64) -> Vec<Effect<'a>> {
        let state = std::mem::replace(&mut self.state, State::Done);
        let (state, effects) = match (state, input) {
            (State::Headers, Input::Headers(head)) => self.headers(head, worker, now_us),
            (State::Collecting { path, .. }, Input::BodyChunk { bytes, ends }) => {
                self.collect(path, bytes, ends, worker)
            }
            (State::Collecting { path, bytes }, Input::Trailers) => self.collect(path, bytes, true, worker),
            (State::Collecting { path, .. }, Input::Body(bytes)) => self.read(path, bytes, worker, now_us),
            (state @ State::Collecting { bytes, .. }, Input::Tick) => {
                if bytes == 0 && now_us >= self.started_us + BODY_WAIT_MS * 1000 {
                    resumed(self.pass(Reason::BodyNotSeen))
                } else {
                    (state, vec![])
                }
            }
            (State::Asking(asking), input) => self.asking(asking, input, worker, now_us),
            (State::Headers | State::Collecting { .. }, Input::AnswerHeaders { status, endpoint, ends }) => {
                self.answer_early(status, endpoint, ends, worker)
            }
            (
                State::Routed(fate) | State::FallenBack(fate) | State::PassedThrough(fate),
                Input::AnswerHeaders { status, endpoint, ends },
            ) => self.answer(fate, status, endpoint, ends, worker),
            (State::Routed(mut fate), Input::Tick) => {
                fate.renew(worker, now_us);
                (State::Routed(fate), vec![])
            }
            (State::Answering(mut answer), Input::AnswerChunk { head, tail, ends }) => {
                answer.chunk(head, tail, ends, worker, now_us);
                (State::Answering(answer), vec![])
            }
            (State::Answering(mut answer), Input::AnswerTrailers) => {
                answer.ended();
                (State::Answering(answer), vec![])
            }
            (State::Answering(mut answer), Input::Tick) => {
                answer.renew(worker, now_us);
                (State::Answering(answer), vec![])
            }
            (State::Headers | State::Collecting { .. }, Input::Log(ending)) => {
                self.gone(ending, worker, now_us)
            }
            (
                State::Routed(fate) | State::FallenBack(fate) | State::PassedThrough(fate),
                Input::Log(ending),
            ) => {
                Answer::none(fate, self.reads).end(ending, worker, now_us);
                (State::Done, vec![])
            }
            (State::Answering(answer), Input::Log(ending)) => {
                answer.end(ending, worker, now_us);
                (State::Done, vec![])
            }
            (state, Input::Reply(reply)) => {
                fate::release_unused(reply, worker);
                (state, vec![])
            }
            (state, _) => (state, vec![]),
        };
        self.state = state;
        effects
    }

    fn headers<'a>(&mut self, head: RequestHead, worker: &mut Worker, now_us: u64) -> Step<'a> {
        (self.group, self.policy) = (head.group, head.policy);
        let path = match head.target {
            Ok(Target::Prompt(path)) => path,
            Ok(Target::Stored(response)) => {
                self.reads = Reads::Nothing;
                return self.ask(PromptRequest::about(response), 0, worker, now_us);
            }
            Err(reason) => return self.pass(reason),
        };
        if path == KnownPath::Responses {
            self.reads = Reads::UsageAndId;
        }
        if head.ends {
            return self.pass(Reason::EmptyBody);
        }
        if head.is_encoded {
            return self.pass(Reason::ContentEncoding);
        }
        if head.is_multipart {
            return self.pass(Reason::NotJson);
        }
        if head.awaits_engine {
            return self.pass(Reason::ExpectContinue);
        }
        match body::announced(head.content_length, worker.config.max_body_bytes) {
            Collect::TooLarge => self.pass(Reason::BodyTooLarge),
            Collect::Empty => self.pass(Reason::EmptyBody),
            Collect::More | Collect::Read => (State::Collecting { path, bytes: 0 }, vec![Effect::Hold]),
        }
    }

    fn collect<'a>(&self, path: KnownPath, bytes: usize, ends: bool, worker: &Worker) -> Step<'a> {
        match body::collected(bytes, ends, worker.config.max_body_bytes) {
            Collect::More => (State::Collecting { path, bytes }, vec![Effect::Hold]),
            Collect::Read => (State::Collecting { path, bytes }, vec![Effect::ReadBody(bytes)]),
            Collect::Empty => self.pass(Reason::EmptyBody),
            Collect::TooLarge => self.pass(Reason::BodyTooLarge),
        }
    }

    fn read<'a>(&mut self, path: KnownPath, body: &'a [u8], worker: &mut Worker, now_us: u64) -> Step<'a> {
        let request = match request::extract(path, body) {
            Ok(request) => request,
            Err(reason) => return self.pass(reason),
        };
        if !request.keeps_response {
            self.reads = Reads::Usage;
        }
        self.ask(request, body.len(), worker, now_us)
    }

    fn ask<'a>(
        &self,
        request: PromptRequest<'a>,
        body_bytes: usize,
        worker: &mut Worker,
        now_us: u64,
    ) -> Step<'a> {
        let is_slow = body_bytes >= SLOW_BODY_BYTES;
        let asking = Asking { call: None, since_us: now_us, affinity: request.affinity, is_slow };
        if !worker.circuit.may_ask(now_us) {
            return self.fall_back(&asking, Reason::CircuitOpen, worker, now_us);
        }
        let ask = Ask {
            request,
            endpoints_version: worker.ring.version(),
            policy: self.policy.map_or_else(|| worker.config.policy.clone(), str::to_owned),
            group: if self.group == 0 { asking.affinity } else { self.group },
            timeout_us: worker.config.timeout_us,
        };
        (State::Asking(asking), vec![Effect::Ask(Box::new(ask))])
    }

    /// The indexer decided.
    fn route<'a>(&self, asking: &Asking, mut reply: Reply, worker: &mut Worker, now_us: u64) -> Step<'a> {
        if let Some(set) = reply.endpoints.take() {
            worker.ring.replace(set);
        }
        let asked = |outcome, reason| {
            let us = Some(now_us.saturating_sub(asking.since_us));
            Effect::Settled(Settled { outcome, reason, added_us: us, asked_us: us })
        };
        let Some(route) = fate::usable(&mut reply.candidates, &worker.ring) else {
            let fate = Fate::passed(Reason::NoEndpoints, now_us).decided_by(&reply);
            return (State::PassedThrough(fate), vec![asked(Outcome::Passed, Some(Reason::NoEndpoints))]);
        };
        let fate = Fate::routed(reply, worker, now_us).sent(&route);
        let settled = asked(fate.outcome(), fate.reason());
        (State::Routed(fate), vec![Effect::Route(route), settled])
    }

    /// No indexer decided: the ring does, or the proxy where no endpoint is known.
    fn fall_back<'a>(&self, asking: &Asking, reason: Reason, worker: &mut Worker, now_us: u64) -> Step<'a> {
        let waited_us = now_us.saturating_sub(asking.since_us);
        let settled = |outcome| {
            Effect::Settled(Settled {
                outcome,
                reason: Some(reason),
                added_us: Some(waited_us),
                asked_us: (reason != Reason::CircuitOpen).then_some(waited_us),
            })
        };
        let places = worker.ring.pick(asking.affinity, worker.config.load_factor);
        let Some(first) = places.first() else {
            let fate = Fate::passed(reason, self.started_us);
            return (State::PassedThrough(fate), vec![settled(Outcome::Passed)]);
        };
        let route = fate::route(places.iter());
        let fate = Fate::fallen_back(reason, &first.endpoint, worker, self.started_us).sent(&route);
        (State::FallenBack(fate), vec![Effect::Route(route), settled(Outcome::Fallback)])
    }

    /// The filter has no say.
    fn pass<'a>(&self, reason: Reason) -> Step<'a> {
        let settled =
            Settled { outcome: Outcome::Passed, reason: Some(reason), added_us: None, asked_us: None };
        (State::PassedThrough(Fate::passed(reason, self.started_us)), vec![Effect::Settled(settled)])
    }

    /// The proxy answers a request that it has not sent anywhere.
    fn answer_early<'a>(&self, status: u32, endpoint: String, ends: bool, worker: &mut Worker) -> Step<'a> {
        let (_, mut effects) = self.pass(Reason::AnsweredEarly);
        let fate = Fate::passed(Reason::AnsweredEarly, self.started_us);
        let (state, more) = self.answer(fate, status, endpoint, ends, worker);
        effects.extend(more);
        (state, effects)
    }

    fn answer<'a>(
        &self,
        mut fate: Fate,
        status: u32,
        endpoint: String,
        ends: bool,
        worker: &mut Worker,
    ) -> Step<'a> {
        fate.served_by(&endpoint, worker);
        let receipt = worker.config.response_header.then(|| Effect::Receipt(fate.receipt(&endpoint)));
        let answer = Answer::begun(fate, self.reads, status, endpoint, ends);
        (State::Answering(answer), receipt.into_iter().collect())
    }

    /// It ended before a decision.
    fn gone<'a>(&self, ending: Ending, worker: &mut Worker, now_us: u64) -> Step<'a> {
        let (_, effects) = self.pass(Reason::ClientGone);
        let fate = Fate::passed(Reason::ClientGone, self.started_us);
        Answer::none(fate, self.reads).end(ending, worker, now_us);
        (State::Done, effects)
    }
}

#[cfg(test)]
mod tests;
