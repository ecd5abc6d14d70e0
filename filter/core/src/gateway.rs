//! All state of one worker, and the clockwork that wakes it: the only thing that the shell talks to.
//!
//! In: inputs for a request by the number of its context, ticks of the root context, the fate of report calls. Out:
//! effects to apply in a request's context, and batches to send. The gateway owns the sessions and the shared
//! [`Worker`]; it never calls anybody.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Config;
use crate::limits::REPORT_TIMEOUT_MS;
use crate::report::Event;
use crate::session::{Effect, Ending, Input, Session, Window};
use crate::worker::Worker;

/// Everything that one worker knows.
#[derive(Debug)]
pub struct Gateway {
    worker: Worker,
    sessions: BTreeMap<u32, Entry>,
    /// When which session wants a tick.
    timers: BTreeSet<(u64, u32)>,
    call: ReportCall,
}

#[derive(Debug)]
struct Entry {
    session: Session,
    due_us: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportCall {
    /// None is running; the last one began then.
    Idle { last_us: u64 },
    /// One is running since then.
    Running { since_us: u64 },
}

/// What a tick found to do.
#[derive(Debug, Default)]
pub struct Tick {
    /// Effects per request.
    pub woken: Vec<(u32, Vec<Effect<'static>>)>,
    /// A report call is overdue: cancel it.
    pub cancel_report: bool,
    /// Events to report now, perhaps none of them: then it is a probe.
    pub report: Option<Vec<Event>>,
    /// Events that were dropped since the last tick.
    pub reports_dropped: u64,
    /// Decided requests that other endpoints served than those named, since the last tick.
    pub astray: u64,
}

impl Gateway {
    /// A worker with this configuration that has seen nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            worker: Worker::new(config),
            sessions: BTreeMap::new(),
            timers: BTreeSet::new(),
            call: ReportCall::Idle { last_us: 0 },
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &Config {
        &self.worker.config
    }

    /// What its requests share.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Requests that are not over.
    pub fn pending(&self) -> usize {
        self.sessions.len()
    }

    /// What this request wants to see of the next chunk of its answer's body; none: the chunk may pass unseen.
    pub fn window(&self, id: u32) -> Option<Window> {
        self.sessions.get(&id).and_then(|entry| entry.session.window())
    }

    /// Something happened to a request. Its headers make it known, its log entry forgets it.
    pub fn step<'a>(&mut self, id: u32, input: Input<'a>, now_us: u64) -> Vec<Effect<'a>> {
        if matches!(input, Input::Headers(_)) {
            self.sessions.entry(id).or_insert_with(|| Entry { session: Session::new(now_us), due_us: None });
        }
        let last = matches!(input, Input::Log(_));
        let Some(entry) = self.sessions.get_mut(&id) else { return vec![] };
        let effects = entry.session.step(input, &mut self.worker, now_us);
        let due_us = if last { None } else { entry.session.due_us(&self.worker) };
        if due_us != entry.due_us {
            if let Some(old) = std::mem::replace(&mut entry.due_us, due_us) {
                self.timers.remove(&(old, id));
            }
            if let Some(new) = due_us {
                self.timers.insert((new, id));
            }
        }
        if last {
            self.sessions.remove(&id);
        }
        effects
    }

    /// The proxy forgets a request. Usually it was logged before, and nothing is left to do.
    pub fn forget(&mut self, id: u32, now_us: u64) {
        self.step(id, Input::Log(Ending::default()), now_us);
    }

    /// Time has passed.
    pub fn tick(&mut self, now_us: u64) -> Tick {
        let mut tick = Tick::default();
        // Every session is woken once a tick at most, so that one that stays due cannot hold the loop.
        let due: Vec<u32> =
            self.timers.iter().take_while(|(due, _)| *due <= now_us).map(|(_, id)| *id).collect();
        for id in due {
            let effects = self.step(id, Input::Tick, now_us);
            if !effects.is_empty() {
                tick.woken.push((id, effects));
            }
        }
        if let ReportCall::Running { since_us } = self.call
            && now_us >= since_us + REPORT_TIMEOUT_MS * 1000
        {
            tick.cancel_report = true;
            self.report_failed();
        }
        if self.report_is_due(now_us) {
            self.call = ReportCall::Running { since_us: now_us };
            tick.report = Some(self.worker.reports.take().to_vec());
        }
        tick.reports_dropped = self.worker.reports.take_dropped();
        tick.astray = self.worker.followed.take_astray();
        tick
    }

    fn report_is_due(&mut self, now_us: u64) -> bool {
        let ReportCall::Idle { last_us } = self.call else { return false };
        if self.worker.circuit.is_open() {
            return self.worker.circuit.take_probe(now_us);
        }
        !self.worker.reports.is_empty() && now_us >= last_us + self.worker.config.report_interval_us
    }

    /// The report arrived: the number of its events. Also where the indexer refused it for good.
    pub fn report_done(&mut self) -> usize {
        self.worker.circuit.probed();
        self.idle();
        self.worker.reports.confirm()
    }

    /// The report did not arrive.
    pub fn report_failed(&mut self) {
        self.idle();
        self.worker.reports.give_back();
    }

    fn idle(&mut self) {
        if let ReportCall::Running { since_us } = self.call {
            self.call = ReportCall::Idle { last_us: since_us };
        }
    }
}

#[cfg(test)]
mod tests;
