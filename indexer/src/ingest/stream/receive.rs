//! From a stream's sockets to its sequencer: connections, messages, and answers of the replay.

use warmpath_kv::Input;

use super::Stream;
use crate::ingest::frames::{self, Framed, RawBatch};
use crate::ingest::sockets::{ConnectionEvent, EventSocket};
use crate::ingest::turn::{Changed, Turn, Yield};
use crate::ingest::warnings;

/// Messages read from one socket in one turn, so that a busy stream cannot starve the others.
const MESSAGES_PER_TURN: usize = 64;

/// Wait before a socket that could not be made is tried again, in milliseconds.
const REOPEN_MS: u64 = 5_000;

/// Waits before a connection that did not last is made anew, in milliseconds: from, to.
const PAUSE_MS: (u64, u64) = (100, 2_000);

/// A connection that lasted this long, in milliseconds, is made anew at once.
const STEADY_MS: u64 = 1_000;

impl Stream {
    pub(super) fn open_if_due(&mut self, turn: Turn<'_>) {
        if self.socket.is_some() || turn.now < self.reopen_at {
            return;
        }
        self.opened += 1;
        self.changed = Changed::State;
        let name = format!("{}-{}", self.spec.id, self.opened);
        match EventSocket::open(&self.context, &self.spec.events, &name) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.error = None;
            }
            Err(error) => {
                self.reopen_at = turn.now.plus(REOPEN_MS);
                self.error = Some(error);
                if self.warned.no_socket.admit(turn.now) {
                    warnings::no_socket(&self.spec, &self.spec.events, error);
                }
            }
        }
    }

    pub(super) fn read_monitor(&mut self, turn: Turn<'_>) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(socket) = &self.socket else { return };
            match socket.connection_event() {
                Ok(Some(ConnectionEvent::Connected)) => {
                    tracing::info!(stream = %self.spec.id, endpoint = %self.spec.endpoint, rank = self.spec.rank, "KV events connected");
                    self.connected_at = Some(turn.now);
                    self.ranks.begin_anew();
                    self.admit(Input::Connected, turn);
                }
                Ok(Some(ConnectionEvent::Disconnected)) => self.disconnected(turn),
                Ok(Some(ConnectionEvent::HandshakeFailed)) => {
                    self.read.handshakes_failed += 1;
                    self.changed = Changed::State;
                }
                Ok(None) => return,
                Err(error) => return self.fail(error, turn),
            }
        }
    }

    /// Makes a new socket, so that what waits in this one cannot be taken for the next incarnation's. Whoever takes
    /// connections only to close them, as a proxy without its engine does, is tried after pauses that grow.
    fn disconnected(&mut self, turn: Turn<'_>) {
        self.socket = None;
        self.replay = None;
        let lasted = self.connected_at.take().map(|since| turn.now.since(since));
        self.pause_ms = match lasted {
            Some(ms) if ms >= STEADY_MS => 0,
            _ => (self.pause_ms * 2).clamp(PAUSE_MS.0, PAUSE_MS.1),
        };
        self.reopen_at = turn.now.plus(self.pause_ms);
        if lasted.is_some() {
            tracing::info!(stream = %self.spec.id, endpoint = %self.spec.endpoint, rank = self.spec.rank, "KV events disconnected");
            self.admit(Input::Disconnected, turn);
        }
        self.open_if_due(turn);
    }

    pub(super) fn read_events(&mut self, turn: Turn<'_>) -> Yield {
        let mut read = Yield::Nothing;
        for _ in 0..MESSAGES_PER_TURN {
            let Some(socket) = &self.socket else { return read };
            match frames::receive(&socket.events) {
                Ok(Some(Framed::Batch { seq, batch })) if self.is_own(&batch, turn) => {
                    self.admit(Input::Published { seq, batch }, turn);
                }
                Ok(Some(Framed::Batch { .. })) => {}
                // An end marker belongs to a replay, not here.
                Ok(Some(Framed::Malformed | Framed::End)) => self.count_malformed(),
                Ok(None) => return read,
                Err(error) => {
                    self.fail(error, turn);
                    return read;
                }
            }
            read = Yield::All;
        }
        Yield::Part
    }

    pub(super) fn read_replay(&mut self, turn: Turn<'_>) -> Yield {
        let mut read = Yield::Nothing;
        for _ in 0..MESSAGES_PER_TURN {
            // Handing in an answer may end the replay or begin another.
            let Some(replay) = &self.replay else { return read };
            match frames::receive(&replay.answers) {
                Ok(Some(Framed::Batch { seq, batch })) if self.is_own(&batch, turn) => {
                    self.admit(Input::Replayed { seq, batch }, turn);
                }
                Ok(Some(Framed::Batch { .. })) => {}
                Ok(Some(Framed::End)) => {
                    if let Some(replay) = &mut self.replay {
                        replay.end();
                    }
                    self.admit(Input::ReplayEnded, turn);
                }
                Ok(Some(Framed::Malformed)) => self.count_malformed(),
                Ok(None) => return read,
                // The sequencer's deadline takes it from here.
                Err(error) => {
                    tracing::debug!(stream = %self.spec.id, %error, "the replay socket failed");
                    self.replay = None;
                    return read;
                }
            }
            read = Yield::All;
        }
        Yield::Part
    }

    /// Whether the batch is of this stream's rank. Where the socket is not meant to carry others, that is said.
    fn is_own(&mut self, batch: &RawBatch, turn: Turn<'_>) -> bool {
        if self.ranks.admits(&batch.0) {
            return true;
        }
        if !self.spec.shared {
            self.read.other_ranks += 1;
            self.changed = self.changed.max(Changed::Progress);
            if self.warned.other_ranks.admit(turn.now) {
                warnings::other_ranks(&self.spec);
            }
        }
        false
    }

    fn count_malformed(&mut self) {
        self.read.malformed_messages += 1;
        self.changed = Changed::State;
    }

    /// The event socket does not work any more.
    fn fail(&mut self, error: zmq::Error, turn: Turn<'_>) {
        self.socket = None;
        self.connected_at = None;
        self.reopen_at = turn.now.plus(REOPEN_MS);
        self.error = Some(error);
        self.admit(Input::Disconnected, turn);
    }
}
