//! The transitions that a published batch makes: in its turn, early, late, twice, or of a process that begins anew.

use std::collections::VecDeque;

use crate::index::Origin;
use crate::stream::{DegradedBy, Millis};

use super::{Action, Sequencer, State, Weight};

impl<B: Weight> Sequencer<B> {
    pub(super) fn published(&mut self, seq: u64, batch: B, now: Millis, actions: &mut VecDeque<Action<B>>) {
        match self.state {
            // A message of a closed connection says nothing about the next one.
            State::Stale(_) => {
                self.stats.duplicates += 1;
                return;
            }
            // The message overtook the news of its connection.
            State::Cold => self.begin_anew(now, actions),
            State::Live { .. } | State::Probing { .. } | State::Gap { .. } | State::Replaying { .. } => {
                if self.has_restarted(seq, &batch, now) {
                    self.stats.restarts += 1;
                    if let State::Probing { .. } | State::Replaying { .. } = self.state {
                        actions.push_back(Action::DropReplay);
                    }
                    self.begin_anew(now, actions);
                }
            }
        }
        if self.last_published.is_none_or(|last| seq > last) {
            self.last_published = Some(seq);
            self.last_made_at = batch.made_at();
        }
        match self.state {
            State::Cold => {
                if seq > 0 {
                    self.degraded = Some((DegradedBy::JoinedLate, seq));
                }
                self.apply(seq, batch, Origin::Published, actions);
                self.state = State::Live { heard_at: now, replayed_at: None };
            }
            State::Live { .. } | State::Probing { .. } => self.published_live(seq, batch, now, actions),
            State::Gap { .. } | State::Replaying { .. } => self.wait(seq, batch, Origin::Published),
            State::Stale(_) => {}
        }
    }

    /// Numbers of one connection rise, except that a batch may be late, and that a replay may have brought one before its
    /// publication.
    fn has_restarted(&self, seq: u64, batch: &B, now: Millis) -> bool {
        if self.last_published.is_some_and(|last| seq <= last) {
            return !self.is_late(seq, batch);
        }
        let may_overlap = match self.state {
            State::Live { replayed_at, .. } | State::Probing { replayed_at, .. } => {
                replayed_at.is_some_and(|at| now.since(at) <= self.config.overlap_ms)
            }
            State::Cold | State::Gap { .. } | State::Replaying { .. } | State::Stale(_) => true,
        };
        !may_overlap && self.next.is_some_and(|next| seq < next)
    }

    /// The batch was made before, or is, the last one published. A process that begins anew makes its batches later; its first
    /// number is believed to be one even if its clock was set back.
    fn is_late(&self, seq: u64, batch: &B) -> bool {
        seq > 0 && batch.made_at().zip(self.last_made_at).is_some_and(|(made, last)| made <= last)
    }

    fn published_live(&mut self, seq: u64, batch: B, now: Millis, actions: &mut VecDeque<Action<B>>) {
        if let State::Live { heard_at, .. } = &mut self.state {
            *heard_at = now;
        }
        let next = self.next.unwrap_or(seq);
        if seq < next {
            self.stats.duplicates += 1;
        } else if seq == next {
            self.apply(seq, batch, Origin::Published, actions);
        } else {
            self.stats.gaps += 1;
            self.stats.missing_batches = self.stats.missing_batches.saturating_add(seq - next);
            if self.config.has_replay {
                self.wait(seq, batch, Origin::Published);
                self.ask(1, now, actions);
            } else {
                self.lose(DegradedBy::LostWithoutReplay, seq, actions);
                self.apply(seq, batch, Origin::Published, actions);
            }
        }
    }
}
