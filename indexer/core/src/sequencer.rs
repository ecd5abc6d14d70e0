//! Which batches of one stream to apply, in which order, and when to ask the engine's replay again. Pure.
//!
//! In: what happens on the stream's sockets, and the time ([`Input`]). Out: what to do ([`Action`]) and how far the
//! stream may be believed ([`Trust`]). The caller applies, clears and asks, in the order told.
//!
//! ```text
//!            connected, replay configured
//!      ┌───────────────────────────────────────────┐
//!      │                                           ▼            complete
//!    Cold ── first batch (no replay) ──▶ Live ── gap ──▶ Replaying ──────────▶ Live
//!      ▲                                 │ ▲               │  ▲  │ no answer, no progress
//!      │ connected,              idle    │ │ ended,   retry│  │  ▼
//!      │ no replay                       ▼ │ timeout       │  └─ Gap ── too often ──▶ Live, degraded
//!    Stale ◀── disconnected (any)      Probing ── nothing: the engine is behind us ──▶ Replaying from 0
//!      └── connected, replay configured: Replaying from the last batch applied, to prove that it is the same engine;
//!          else from 0
//! ```
//!
//! What the engine's protocol makes necessary:
//!
//! - There is no epoch in the messages. Numbers that fall mean a restart, unless the batch was made before the last one:
//!   then it is late, or came twice. A new process that already passed the old number looks like a gap. So every new
//!   connection counts as a possible restart, and what is held is not believed until the replay brings the batch that was
//!   applied last, byte for byte: it holds the time at which it was made, so no other process has its like. Where it does
//!   not: clear, replay from 0. What was saved by another indexer, or by an earlier process of this one, is taken up in
//!   the same way ([`Sequencer::resume`]).
//! - Batches published while a replay runs wait, and are applied after what they come after.
//! - A replay silently starts at the oldest batch kept, and may lose some in the middle. Both show in the numbers.
//! - A lost tail shows only with the next batch. So an idle stream is probed: the replay is asked for the last batch
//!   known. No answer but the end means that the engine counts anew; more than one means a lost tail. So is a stream, idle or
//!   not, whose replay did not answer: when it does again, all of it is read anew.
//! - Where something is lost for good, everything held is dropped (a removal may have been among it), and the stream
//!   is degraded until the engine says that its cache is empty. The same where it is found out elsewhere that the engine does
//!   not tell what it stores.

use std::collections::VecDeque;

use crate::index::{ClearCause, Origin};
use crate::stream::{DegradedBy, Millis, StaleBy, Trust};

mod buffer;
mod config;
mod messages;
mod published;
mod replay;
mod stats;

use buffer::Buffer;
pub use config::SequencerConfig;
pub use messages::{Action, Input, Weight};
pub use stats::{SequencerStats, Waiting};

/// See the module's documentation.
#[derive(Debug)]
pub struct Sequencer<B> {
    config: SequencerConfig,
    state: State,
    /// The number of the next batch to apply; `None`: whatever comes next.
    next: Option<u64>,
    /// What is held is of the process that we are connected to. Where it is not known to be, the replay is asked for
    /// the batch before the next one first.
    is_proven: bool,
    /// The highest number on the event socket of this connection. They rise there.
    last_published: Option<u64>,
    /// When the batch of that number was made.
    last_made_at: Option<f64>,
    /// Why the index is incomplete, and from which batch on it was built.
    degraded: Option<(DegradedBy, u64)>,
    /// When the replay was last asked, or given up.
    asked_at: Millis,
    waiting: Buffer<B>,
    silence: Silence,
    stats: SequencerStats,
}

/// Whether the engine has ever said anything, on either socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    Lasts {
        since: Millis,
    },
    /// It has lasted too long.
    Noticed,
    /// Something was said. It never is silent again: an idle engine says nothing either.
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing heard yet on this connection.
    Cold,
    /// Everything published has been applied, as far as is known.
    Live { heard_at: Millis, replayed_at: Option<Millis> },
    /// Live, and the replay has been asked for the last batch known.
    Probing { deadline: Millis, is_answered: bool, replayed_at: Option<Millis> },
    /// Batches are missing, and the replay is asked again later.
    Gap { retry_at: Millis, attempt: u32 },
    /// Batches are missing, and the replay has been asked for them.
    Replaying { deadline: Millis, attempt: u32, is_answered: bool, has_progressed: bool },
    /// Not connected.
    Stale(StaleBy),
}

// === impl Sequencer ===

impl<B: Weight> Sequencer<B> {
    #[must_use]
    pub fn new(config: SequencerConfig, now: Millis) -> Self {
        Self {
            config,
            state: State::Cold,
            next: None,
            is_proven: true,
            last_published: None,
            last_made_at: None,
            degraded: None,
            asked_at: now,
            waiting: Buffer::new(config.waiting_max, config.waiting_bytes_max),
            silence: Silence::Lasts { since: now },
            stats: SequencerStats::default(),
        }
    }

    /// Goes on where something that was saved ends: with the batch `last`, which the caller has to keep for
    /// [`Action::Compare`]. Nothing of it is believed until the engine shows that batch.
    #[must_use]
    pub fn resume(config: SequencerConfig, now: Millis, last: u64) -> Self {
        let state = State::Stale(StaleBy::Disconnected);
        Self { state, next: Some(last.saturating_add(1)), is_proven: false, ..Self::new(config, now) }
    }

    /// The one transition function: takes an input and adds what to do to what is left to do.
    pub fn admit(&mut self, input: Input<B>, now: Millis, actions: &mut VecDeque<Action<B>>) {
        if let Input::Published { .. } | Input::Replayed { .. } | Input::ReplayEnded = input {
            self.silence = Silence::Broken;
        }
        match input {
            Input::Connected => self.connected(now, actions),
            Input::Disconnected => self.disconnected(actions),
            Input::Published { seq, batch } => self.published(seq, batch, now, actions),
            Input::Replayed { seq, batch } => self.replayed(seq, batch, now, actions),
            Input::ReplayEnded => self.replay_ended(now, actions),
            Input::Emptied { seq } => {
                if self.degraded.is_some_and(|(_, since)| since <= seq) {
                    self.degraded = None;
                }
            }
            Input::Contradicted => {
                if self.is_read_up() {
                    self.lose(DegradedBy::Contradicted, self.next.unwrap_or(0), actions);
                }
            }
            Input::Asleep => {
                if self.is_read_up() {
                    self.degraded = None;
                    actions.push_back(Action::Clear(ClearCause::EngineCleared));
                }
            }
            Input::Compared { is_same } => self.compared(is_same, now, actions),
            Input::Undecodable { seq } => {
                let since = seq.saturating_add(1);
                // A later loss may be known already.
                if self.degraded.is_none_or(|(_, known)| known <= since) {
                    self.degraded = Some((DegradedBy::Undecodable, since));
                }
                // Before what follows the batch and is still to be applied.
                actions.push_front(Action::Clear(ClearCause::EventsLost));
            }
            Input::Tick => self.tick(now, actions),
        }
    }

    #[must_use]
    pub fn trust(&self) -> Trust {
        match (self.state, self.degraded) {
            (State::Stale(by), _) => Trust::Stale(by),
            _ if self.silence == Silence::Noticed => Trust::Silent,
            (State::Gap { .. } | State::Replaying { .. }, _) if !self.is_proven => {
                Trust::Stale(StaleBy::Unproven)
            }
            (State::Cold | State::Gap { .. } | State::Replaying { .. }, _) => Trust::Recovering,
            (State::Live { .. } | State::Probing { .. }, Some((by, _))) => Trust::Degraded(by),
            (State::Live { .. } | State::Probing { .. }, None) => Trust::Live,
        }
    }

    /// The number of the last batch applied; `None` where there is none.
    #[must_use]
    pub fn last_applied(&self) -> Option<u64> {
        self.next?.checked_sub(1)
    }

    /// What waits for batches before it: bounded by the configuration.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        self.waiting.size()
    }

    #[must_use]
    pub fn stats(&self) -> SequencerStats {
        self.stats
    }

    /// Everything published has been applied, as far as is known.
    fn is_read_up(&self) -> bool {
        matches!(self.state, State::Live { .. } | State::Probing { .. })
    }

    fn has_heard(&self) -> bool {
        self.next.is_some() || self.last_published.is_some()
    }

    // --- connection ---

    fn connected(&mut self, now: Millis, actions: &mut VecDeque<Action<B>>) {
        if self.has_heard() {
            self.stats.reconnects += 1;
        }
        if self.config.has_replay && self.last_applied().is_some() {
            self.waiting.clear();
            self.last_published = None;
            self.last_made_at = None;
            self.is_proven = false;
            self.ask(1, now, actions);
        } else {
            self.begin_anew(now, actions);
        }
    }

    fn disconnected(&mut self, actions: &mut VecDeque<Action<B>>) {
        if let State::Cold = self.state {
            return;
        }
        if let State::Probing { .. } | State::Replaying { .. } = self.state {
            actions.push_back(Action::DropReplay);
        }
        self.waiting.clear();
        self.state = State::Stale(StaleBy::Disconnected);
    }

    /// The engine may have an empty cache and count from 0: forget all and fetch its history.
    fn begin_anew(&mut self, now: Millis, actions: &mut VecDeque<Action<B>>) {
        if self.has_heard() {
            actions.push_back(Action::Clear(ClearCause::Restarted));
        }
        self.waiting.clear();
        self.degraded = None;
        self.last_published = None;
        self.is_proven = true;
        self.last_made_at = None;
        if self.config.has_replay {
            self.next = Some(0);
            self.ask(1, now, actions);
        } else {
            self.next = None;
            self.state = State::Cold;
        }
    }

    // --- time ---

    fn tick(&mut self, now: Millis, actions: &mut VecDeque<Action<B>>) {
        if let Silence::Lasts { since } = self.silence
            && now.since(since) >= self.config.silent_ms
        {
            self.silence = Silence::Noticed;
        }
        match &mut self.state {
            State::Live { heard_at, replayed_at } => {
                let is_idle = now.since(*heard_at) >= self.config.probe_ms;
                let replayed_at = *replayed_at;
                if !self.config.has_replay || !is_idle && !self.may_heal(now) {
                    return;
                }
                let Some(next) = self.next else {
                    // Nothing is held, so asking for all of it risks nothing.
                    self.begin_anew(now, actions);
                    return;
                };
                self.stats.probes += 1;
                self.asked_at = now;
                let deadline = now.plus(self.config.replay_timeout_ms);
                self.state = State::Probing { deadline, is_answered: false, replayed_at };
                actions.push_back(Action::AskReplay { from: next.saturating_sub(1) });
            }
            State::Probing { deadline, replayed_at, .. } if now >= *deadline => {
                self.stats.probes_failed += 1;
                self.state = State::Live { heard_at: now, replayed_at: *replayed_at };
                actions.push_back(Action::DropReplay);
            }
            State::Gap { retry_at, attempt } if now >= *retry_at => {
                let attempt = attempt.saturating_add(1);
                self.ask(attempt, now, actions);
            }
            State::Replaying { deadline, attempt, has_progressed, .. } if now >= *deadline => {
                let attempt = if *has_progressed { 1 } else { *attempt };
                actions.push_back(Action::DropReplay);
                self.fail_attempt(attempt, now, actions);
            }
            State::Cold
            | State::Probing { .. }
            | State::Gap { .. }
            | State::Replaying { .. }
            | State::Stale(_) => {}
        }
    }

    // --- batches ---

    fn apply(&mut self, seq: u64, batch: B, origin: Origin, actions: &mut VecDeque<Action<B>>) {
        match origin {
            Origin::Published => self.stats.applied += 1,
            Origin::Replayed => self.stats.replayed += 1,
        }
        self.next = Some(seq.saturating_add(1));
        actions.push_back(Action::Apply { seq, batch, origin });
    }

    fn wait(&mut self, seq: u64, batch: B, origin: Origin) {
        if self.next.is_some_and(|next| seq < next) {
            self.stats.duplicates += 1;
        } else if !self.waiting.insert(seq, batch, origin) {
            self.stats.waiting_dropped += 1;
        }
    }

    fn apply_waiting(&mut self, actions: &mut VecDeque<Action<B>>) {
        while let Some((seq, batch, origin)) = self.waiting.pop(self.next.unwrap_or(0)) {
            self.apply(seq, batch, origin, actions);
        }
    }

    /// Something is lost for good: what is held may be wrong, so it goes.
    fn lose(&mut self, by: DegradedBy, since: u64, actions: &mut VecDeque<Action<B>>) {
        self.degraded = Some((by, since));
        actions.push_back(Action::Clear(ClearCause::EventsLost));
    }
}

#[cfg(test)]
mod tests;
