//! The transitions that a replay makes: asking, its proof, its answers, its end, its failure.

use std::collections::VecDeque;

use crate::index::Origin;
use crate::stream::{DegradedBy, Millis};

use super::{Action, Sequencer, State, Weight};

impl<B: Weight> Sequencer<B> {
    /// Asks for what comes next, and first for the batch before it where that has to prove what is held.
    pub(super) fn ask(&mut self, attempt: u32, now: Millis, actions: &mut VecDeque<Action<B>>) {
        self.stats.replays += 1;
        let next = self.next.unwrap_or(0);
        let from = if self.is_proven { next } else { next.saturating_sub(1) };
        let deadline = now.plus(self.config.replay_timeout_ms);
        self.state = State::Replaying { deadline, attempt, is_answered: false, has_progressed: false };
        actions.push_back(Action::AskReplay { from });
    }

    pub(super) fn replayed(&mut self, seq: u64, batch: B, now: Millis, actions: &mut VecDeque<Action<B>>) {
        let timeout = self.config.replay_timeout_ms;
        if self.is_proven
            && let State::Replaying { is_answered: false, .. } = self.state
            && self.next.is_some_and(|next| seq > next)
        {
            // What the engine does not keep any more may have been published meanwhile.
            self.apply_waiting(actions);
        }
        let next = self.next.unwrap_or(seq);
        if !self.is_proven
            && let State::Replaying { deadline, is_answered, .. } = &mut self.state
        {
            *deadline = now.plus(timeout);
            *is_answered = true;
            if seq.checked_add(1) == Some(next) {
                actions.push_back(Action::Compare { seq, batch });
            } else {
                // The engine keeps nothing so old, so what it removed since then may be lost.
                self.disprove(now, actions);
            }
            return;
        }
        match &mut self.state {
            State::Replaying { deadline, is_answered, has_progressed, .. } => {
                let is_first = !std::mem::replace(is_answered, true);
                *deadline = now.plus(timeout);
                *has_progressed |= seq == next || is_first && seq > next;
                if is_first && seq > next {
                    // The engine keeps nothing older, so what is missing is gone.
                    self.stats.lost_batches = self.stats.lost_batches.saturating_add(seq - next);
                    self.lose(DegradedBy::BufferTooShort, seq, actions);
                    self.apply(seq, batch, Origin::Replayed, actions);
                    return;
                }
            }
            State::Probing { is_answered, replayed_at, .. } => {
                *is_answered = true;
                if seq >= next {
                    *replayed_at = Some(now);
                    self.stats.tail_batches += 1;
                }
                if seq > next {
                    self.state = State::Replaying {
                        deadline: now.plus(timeout),
                        attempt: 1,
                        is_answered: true,
                        has_progressed: false,
                    };
                }
            }
            State::Cold | State::Live { .. } | State::Gap { .. } | State::Stale(_) => return,
        }
        if seq == next {
            self.apply(seq, batch, Origin::Replayed, actions);
        } else {
            self.wait(seq, batch, Origin::Replayed);
        }
    }

    pub(super) fn compared(&mut self, is_same: bool, now: Millis, actions: &mut VecDeque<Action<B>>) {
        let State::Replaying { has_progressed, .. } = &mut self.state else { return };
        if self.is_proven {
            return;
        }
        if is_same {
            *has_progressed = true;
            self.is_proven = true;
            self.stats.resumed += 1;
        } else {
            self.stats.restarts += 1;
            self.disprove(now, actions);
        }
    }

    /// What is held is of another process, or cannot be shown to be of this one.
    fn disprove(&mut self, now: Millis, actions: &mut VecDeque<Action<B>>) {
        actions.push_back(Action::DropReplay);
        self.begin_anew_here(now, actions);
    }

    /// The process has been at the other end since the connection began. So what was published on it stays its own, and a
    /// lower number tells of the next process.
    fn begin_anew_here(&mut self, now: Millis, actions: &mut VecDeque<Action<B>>) {
        let published = (self.last_published, self.last_made_at);
        self.begin_anew(now, actions);
        (self.last_published, self.last_made_at) = published;
    }

    pub(super) fn replay_ended(&mut self, now: Millis, actions: &mut VecDeque<Action<B>>) {
        match self.state {
            // It does not have the batch: another process, counting anew.
            State::Replaying { .. } if !self.is_proven => {
                self.stats.restarts += 1;
                self.begin_anew_here(now, actions);
            }
            State::Replaying { attempt, has_progressed, .. } => {
                self.apply_waiting(actions);
                if self.waiting.is_empty() {
                    self.state = State::Live { heard_at: now, replayed_at: Some(now) };
                } else if has_progressed {
                    self.ask(1, now, actions);
                } else {
                    self.fail_attempt(attempt, now, actions);
                }
            }
            State::Probing { is_answered, replayed_at, .. } => {
                let expects_answer = self.next.is_some_and(|next| next > 0);
                if expects_answer && !is_answered {
                    // It does not have the batch that it published last: another process, counting anew.
                    self.stats.restarts += 1;
                    self.begin_anew(now, actions);
                } else if matches!(self.degraded, Some((DegradedBy::ReplayFailed, _))) {
                    // The replay works again, so what was given up can be had. The connection is the one that it was.
                    let last = (self.last_published, self.last_made_at);
                    self.begin_anew(now, actions);
                    (self.last_published, self.last_made_at) = last;
                } else {
                    self.state = State::Live { heard_at: now, replayed_at };
                }
            }
            State::Cold | State::Live { .. } | State::Gap { .. } | State::Stale(_) => {}
        }
    }

    /// The replay was given up a while ago. It may answer again, and a busy stream is never idle.
    pub(super) fn may_heal(&self, now: Millis) -> bool {
        matches!(self.degraded, Some((DegradedBy::ReplayFailed, _)))
            && now.since(self.asked_at) >= self.config.probe_ms
    }

    pub(super) fn fail_attempt(&mut self, attempt: u32, now: Millis, actions: &mut VecDeque<Action<B>>) {
        self.stats.replays_failed += 1;
        if attempt < self.config.attempts_max {
            let pause = self.config.retry_ms.saturating_mul(u64::from(attempt));
            self.state = State::Gap { retry_at: now.plus(pause), attempt };
            return;
        }
        // Go on from the newest batches that follow each other. Whatever came before them is incomplete.
        let since = self.waiting.keep_last_run();
        if let (Some(next), Some(since)) = (self.next, since) {
            let lost = since.saturating_sub(next);
            self.stats.lost_batches = self.stats.lost_batches.saturating_add(lost);
        }
        self.lose(DegradedBy::ReplayFailed, since.unwrap_or(0), actions);
        self.is_proven = true;
        self.asked_at = now;
        self.next = since;
        self.apply_waiting(actions);
        self.state = State::Live { heard_at: now, replayed_at: None };
    }
}
