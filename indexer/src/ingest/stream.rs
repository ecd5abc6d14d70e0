//! One stream: its sockets, its sequencer, and the way from a message to the index.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::RwLock;
use warmpath_kv::index::{ClearCause, Origin};
use warmpath_kv::{Action, Index, Input, Millis, Sequencer, SequencerConfig, StaleBy, Trust, decode_batch};
use zmq::Context;

use super::digest::LastBatch;
use super::frames::RawBatch;
use super::ranks::RankFilter;
use super::sockets::{EventSocket, ReplaySocket};
use super::status::{ReadStats, StreamStatus};
use super::turn::{Changed, Ready, Turn, Yield};
use super::warnings::{self, RateLimit};
use super::{Resumable, StreamSpec, Taken};
use crate::logs::News;

mod receive;

pub(super) struct Stream {
    spec: StreamSpec,
    context: Context,
    /// `None`: could not be made, or is to be made again after a disconnection.
    socket: Option<EventSocket>,
    reopen_at: Millis,
    /// Sockets made so far: part of each one's name.
    opened: u64,
    replay: Option<ReplaySocket>,
    ranks: RankFilter,
    /// `None`: it is not.
    connected_at: Option<Millis>,
    /// Before the next connection, in milliseconds.
    pause_ms: u64,
    error: Option<zmq::Error>,
    sequencer: Sequencer<RawBatch>,
    /// The batch applied last.
    last: Option<LastBatch>,
    /// When the engine made it, in microseconds since 1970.
    last_made_us: u64,
    actions: VecDeque<Action<RawBatch>>,
    /// As the index knows it.
    trust: Trust,
    read: ReadStats,
    last_batch_at: Option<Millis>,
    lag_ms: Option<i64>,
    warned: Warned,
    /// What of its status changed since it was last told.
    changed: Changed,
}

/// One limit per kind of warning, so that one kind does not hide another.
#[derive(Default)]
struct Warned {
    silent: RateLimit,
    degraded: RateLimit,
    no_socket: RateLimit,
    undecodable: RateLimit,
    other_ranks: RateLimit,
    cleared: News,
}

// === impl Stream ===

impl Stream {
    /// `resumed`: what the index holds of it already.
    pub(super) fn new(
        spec: StreamSpec,
        resumed: Option<Resumable>,
        config: SequencerConfig,
        context: Context,
        turn: Turn<'_>,
    ) -> Self {
        let config = SequencerConfig { has_replay: spec.replay.is_some(), ..config };
        let trust = if resumed.is_some() { Trust::Stale(StaleBy::Unproven) } else { Trust::Recovering };
        let mut stream = Self {
            sequencer: match &resumed {
                Some(resumed) => Sequencer::resume(config, turn.now, resumed.seq),
                None => Sequencer::new(config, turn.now),
            },
            last_made_us: resumed.as_ref().map_or(0, |resumed| resumed.made_us),
            last: resumed.map(|resumed| LastBatch::Digest(resumed.digest)),
            ranks: RankFilter::new(spec.rank, spec.shared),
            spec,
            context,
            socket: None,
            reopen_at: turn.now,
            opened: 0,
            replay: None,
            connected_at: None,
            pause_ms: 0,
            error: None,
            actions: VecDeque::new(),
            trust,
            read: ReadStats::default(),
            last_batch_at: None,
            lag_ms: None,
            warned: Warned::default(),
            changed: Changed::State,
        };
        stream.open_if_due(turn);
        stream
    }

    /// The sockets to poll, in the order of [`Ready`].
    pub(super) fn sockets(&self) -> [Option<&zmq::Socket>; 3] {
        [
            self.socket.as_ref().map(|socket| &socket.monitor),
            self.replay.as_ref().map(|replay| &replay.answers),
            self.socket.as_ref().map(|socket| &socket.events),
        ]
    }

    /// Reads what is ready, and returns how much that was. Changes of the connection first: they tell how to take the
    /// messages and answers after them.
    pub(super) fn read(&mut self, ready: Ready, turn: Turn<'_>) -> Yield {
        // Even if it was not ready: a connection is told before its first message, but perhaps only just.
        if ready.monitor || ready.events || ready.replay {
            self.read_monitor(turn);
        }
        let replay = if ready.replay { self.read_replay(turn) } else { Yield::Nothing };
        let events = if ready.events { self.read_events(turn) } else { Yield::Nothing };
        replay.max(events)
    }

    pub(super) fn tick(&mut self, turn: Turn<'_>) {
        self.open_if_due(turn);
        self.admit(Input::Tick, turn);
        if self.trust == Trust::Silent && self.warned.silent.admit(turn.now) {
            warnings::silent(&self.spec, self.connected_at.is_some());
        }
    }

    /// What it holds, if that is exactly what its engine does as far as is known.
    pub(super) fn image(&self, index: &RwLock<Index>) -> Option<Taken> {
        if self.trust != Trust::Live {
            return None;
        }
        let (seq, last) = (self.sequencer.last_applied()?, self.last.as_ref()?);
        let gathered = index.read().gather(self.spec.id)?;
        let digest = last.digest(index.read().secret());
        Some(Taken { seq, digest, made_us: self.last_made_us, gathered })
    }

    /// Its status, if that changed since it was last returned: with `has_ticked` any change, else only those of how it
    /// stands.
    pub(super) fn take_status(&mut self, index: &RwLock<Index>, has_ticked: bool) -> Option<StreamStatus> {
        let least = if has_ticked { Changed::Progress } else { Changed::State };
        if self.changed < least {
            return None;
        }
        self.changed = Changed::Nothing;
        let held = index.read().stream_stats(self.spec.id);
        Some(StreamStatus {
            trust: self.trust,
            is_connected: self.connected_at.is_some(),
            last_seq: self.sequencer.last_applied(),
            last_made_us: self.last_made_us,
            sequence: self.sequencer.stats(),
            waiting: self.sequencer.waiting(),
            read: self.read,
            last_batch_at: self.last_batch_at,
            lag_ms: self.lag_ms,
            blocks: held.map_or(0, |held| held.blocks),
            block_size: held.and_then(|held| held.block_size),
            error: self.error.map(|error| error.to_string()),
            ..StreamStatus::new(self.spec.id, self.spec.endpoint.clone(), self.spec.rank)
        })
    }

    // --- sequence and index ---

    pub(super) fn admit(&mut self, input: Input<RawBatch>, turn: Turn<'_>) {
        self.changed = self.changed.max(match input {
            Input::Tick => Changed::Nothing,
            Input::Published { .. } | Input::Replayed { .. } => Changed::Progress,
            _ => Changed::State,
        });
        let mut actions = std::mem::take(&mut self.actions);
        self.sequencer.admit(input, turn.now, &mut actions);
        while let Some(action) = actions.pop_front() {
            if let Some(outcome) = self.act(action, turn) {
                self.sequencer.admit(outcome, turn.now, &mut actions);
            }
        }
        self.actions = actions;
        self.note_trust(turn);
    }

    /// Returns what the sequencer must know of it.
    fn act(&mut self, action: Action<RawBatch>, turn: Turn<'_>) -> Option<Input<RawBatch>> {
        if !matches!(action, Action::Apply { .. }) {
            self.changed = Changed::State;
        }
        match action {
            Action::Apply { seq, batch, origin } => {
                let outcome = self.apply(seq, &batch, origin, turn);
                self.last = Some(LastBatch::Raw(batch));
                return outcome;
            }
            Action::Compare { batch, .. } => {
                let secret = turn.index.read().secret();
                let is_same = self.last.as_ref().is_some_and(|last| last.is(&batch, secret));
                return Some(Input::Compared { is_same });
            }
            Action::Clear(cause) => self.clear(cause, turn),
            Action::AskReplay { from } => self.ask_replay(from, turn),
            Action::DropReplay => self.replay = None,
        }
        None
    }

    fn apply(&mut self, seq: u64, raw: &RawBatch, origin: Origin, turn: Turn<'_>) -> Option<Input<RawBatch>> {
        let batch = match decode_batch(&raw.0) {
            Ok(batch) => batch,
            Err(error) => {
                self.read.undecodable_batches += 1;
                if self.warned.undecodable.admit(turn.now) {
                    warnings::undecodable(&self.spec, seq, raw.0.len(), &error);
                }
                return Some(Input::Undecodable { seq });
            }
        };
        self.read.batches += 1;
        self.read.events += u64::try_from(batch.events.len()).unwrap_or(u64::MAX);
        self.read.bytes += u64::try_from(raw.0.len()).unwrap_or(u64::MAX);
        self.read.count_problems(batch.problems);
        self.last_batch_at = Some(turn.now);
        self.last_made_us = micros(batch.ts);
        if origin == Origin::Published {
            self.lag_ms = turn.lag_ms(batch.ts);
        }
        let has_emptied = turn.index.write().apply(self.spec.id, &batch, origin);
        has_emptied.then_some(Input::Emptied { seq })
    }

    fn clear(&mut self, cause: ClearCause, turn: Turn<'_>) {
        if self.warned.cleared.is_news(name_of(cause), Instant::now()) {
            tracing::info!(stream = %self.spec.id, endpoint = %self.spec.endpoint, rank = self.spec.rank, cause = name_of(cause), "KV index of the stream cleared");
        }
        turn.index.write().clear(self.spec.id, cause);
    }

    fn ask_replay(&mut self, from: u64, turn: Turn<'_>) {
        let Some(address) = &self.spec.replay else { return };
        let free = self.replay.take().filter(ReplaySocket::is_free);
        let asked =
            free.map_or_else(|| ReplaySocket::open(&self.context, address), Ok).and_then(|mut replay| {
                replay.ask(from)?;
                Ok(replay)
            });
        match asked {
            Ok(replay) => self.replay = Some(replay),
            // The sequencer's deadline takes it from here.
            Err(error) => {
                if self.warned.no_socket.admit(turn.now) {
                    warnings::no_socket(&self.spec, address, error);
                }
            }
        }
    }

    fn note_trust(&mut self, turn: Turn<'_>) {
        let trust = self.sequencer.trust();
        if trust == self.trust {
            return;
        }
        tracing::debug!(stream = %self.spec.id, from = self.trust.name(), to = trust.name(), reason = trust.reason(), "trust changed");
        if let Trust::Degraded(_) = trust
            && self.warned.degraded.admit(turn.now)
        {
            warnings::degraded(&self.spec, trust.reason());
        }
        self.trust = trust;
        self.changed = Changed::State;
        turn.index.write().set_trust(self.spec.id, trust);
    }
}

fn name_of(cause: ClearCause) -> &'static str {
    match cause {
        ClearCause::EngineCleared => "engine_cleared",
        ClearCause::Restarted => "restarted",
        ClearCause::EventsLost => "events_lost",
        ClearCause::EndpointGone => "endpoint_gone",
    }
}

/// The engine's time stamp, seconds since 1970; 0 where it is none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float to an integer saturates, and what is no time becomes 0"
)]
fn micros(ts: f64) -> u64 {
    (ts * 1e6) as u64
}
