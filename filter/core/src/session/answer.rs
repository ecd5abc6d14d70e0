//! The answer to a request, as it passes by: first byte, end, and what it says of its tokens.

use crate::limits::USAGE_TAIL_BYTES;
use crate::outcome::Outcome;
use crate::report::{End, EndCause, What};
use crate::response::IdReader;
use crate::usage::Tail;
use crate::worker::Worker;

use super::exchange::{Ending, Window};
use super::fate::Fate;

/// What an answer is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// Its tokens.
    Usage,
    /// Its tokens, and the id under which the engine keeps it.
    UsageAndId,
    /// Nothing: it tells of the tokens of an earlier request.
    Nothing,
}

/// A request whose answer has begun, or ended without one.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    fate: Fate,
    /// 0: none came.
    status: u32,
    /// Empty: no endpoint answered.
    endpoint: String,
    begun: bool,
    ended: bool,
    reads: Reads,
    id: IdReader,
    tail: Tail,
}

impl Answer {
    /// Its headers came; `ends`: and no body follows.
    pub(super) fn begun(fate: Fate, reads: Reads, status: u32, endpoint: String, ends: bool) -> Self {
        let id = match reads {
            Reads::UsageAndId => IdReader::Seeking(vec![]),
            Reads::Usage | Reads::Nothing => IdReader::Off,
        };
        Self { fate, status, endpoint, begun: false, ended: ends, reads, id, tail: Tail::default() }
    }

    /// None came.
    pub(super) fn none(fate: Fate, reads: Reads) -> Self {
        Self::begun(fate, reads, 0, String::new(), false)
    }

    /// What it wants to see of the next chunk.
    pub(super) fn window(&self) -> Option<Window> {
        let tail = if self.reads == Reads::Nothing { 1 } else { USAGE_TAIL_BYTES };
        self.fate.is_accounted().then(|| Window { head: self.id.wanted(), tail })
    }

    pub(super) fn due_us(&self) -> Option<u64> {
        self.fate.due_us()
    }

    pub(super) fn renew(&mut self, worker: &mut Worker, now_us: u64) {
        self.fate.renew(worker, now_us);
    }

    pub(super) fn chunk(&mut self, head: &[u8], tail: &[u8], ends: bool, worker: &mut Worker, now_us: u64) {
        if !self.begun && !tail.is_empty() {
            self.begun = true;
            // It releases what a decision has reserved; without a decision there is nothing to release.
            if self.fate.is_decided() {
                let what = What::FirstByte { endpoint: self.endpoint.clone(), http_status: self.status };
                self.fate.tell(what, worker, now_us);
            }
        }
        if self.fate.is_accounted() && self.reads != Reads::Nothing {
            self.id.push(head);
            self.tail.push(tail);
        }
        self.ended |= ends;
    }

    pub(super) fn ended(&mut self) {
        self.ended = true;
    }

    /// It is over: the load is released, and the indexer is told.
    pub(super) fn end(mut self, ending: Ending, worker: &mut Worker, now_us: u64) {
        self.fate.release(worker);
        self.fate.judge(&self.endpoint, ending.attempts, worker);
        let cause = if ending.by_client() {
            EndCause::ClientReset
        } else if ending.by_upstream() {
            EndCause::UpstreamReset
        } else if self.ended {
            EndCause::Complete
        } else if self.status == 0 {
            EndCause::ClientReset
        } else {
            EndCause::UpstreamReset
        };
        let decided = matches!(self.fate.outcome(), Outcome::Scored | Outcome::LoadOnly);
        let end = End {
            endpoint: std::mem::take(&mut self.endpoint),
            http_status: self.status,
            cause,
            usage: self.tail.usage(),
            attempts: ending.attempts,
            fallback_reason: if decided { None } else { self.fate.reason() },
            response: self.id.key(),
        };
        self.fate.tell(What::End(end), worker, now_us);
    }
}
