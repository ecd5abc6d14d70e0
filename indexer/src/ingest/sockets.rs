//! The sockets of one stream. An event socket lives for one connection, and a replay socket until a question on it is
//! given up, so that nothing late can come out of them.

use zmq::{Context, Socket, SocketEvent, SocketType};

use super::frames;

/// Messages that wait in the SUB socket at most; TCP's flow control then reaches the publisher, which drops, and we
/// see a gap.
const EVENTS_WAITING_MAX: i32 = 10_000;

/// Largest message accepted. Four times the largest payload that is decoded, so that a batch too large is seen and
/// counted; only beyond does ZeroMQ close the connection.
const MESSAGE_BYTES_MAX: i64 = 64 << 20;

/// Waits between attempts to connect, in milliseconds: from, to.
const RECONNECT_MS: (i32, i32) = (100, 2_000);

/// A ping every so often, in milliseconds: a peer that vanished without a word is noticed after the timeout.
const HEARTBEAT_MS: i32 = 5_000;
const HEARTBEAT_TIMEOUT_MS: i32 = 15_000;

/// What a monitor tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEvent {
    Connected,
    Disconnected,
    /// The peer accepts connections, but does not speak ZeroMQ, or wants another security mechanism.
    HandshakeFailed,
}

/// A subscription to one publisher, and the monitor of its connection.
pub(super) struct EventSocket {
    pub(super) events: Socket,
    pub(super) monitor: Socket,
}

/// A connection to an engine's replay, for one question at a time.
pub(super) struct ReplaySocket {
    pub(super) answers: Socket,
    /// Whether the last answer has not ended yet.
    is_asked: bool,
}

// === impl EventSocket ===

impl EventSocket {
    /// `name` must be unique in the context.
    pub(super) fn open(context: &Context, endpoint: &str, name: &str) -> Result<Self, zmq::Error> {
        let events = context.socket(SocketType::SUB)?;
        prepare(&events)?;
        events.set_rcvhwm(EVENTS_WAITING_MAX)?;
        events.set_subscribe(b"")?;
        let address = format!("inproc://monitor-{name}");
        let watched = [
            SocketEvent::HANDSHAKE_SUCCEEDED,
            SocketEvent::HANDSHAKE_FAILED_NO_DETAIL,
            SocketEvent::HANDSHAKE_FAILED_PROTOCOL,
            SocketEvent::HANDSHAKE_FAILED_AUTH,
            SocketEvent::DISCONNECTED,
        ];
        let mask = watched.iter().fold(0, |mask, event| mask | i32::from(event.to_raw()));
        events.monitor(&address, mask)?;
        let monitor = context.socket(SocketType::PAIR)?;
        monitor.set_linger(0)?;
        monitor.connect(&address)?;
        events.connect(endpoint)?;
        Ok(Self { events, monitor })
    }

    /// The next change of the connection, without waiting.
    pub(super) fn connection_event(&self) -> Result<Option<ConnectionEvent>, zmq::Error> {
        loop {
            // Two frames: event (16 bits) and value (32 bits) in native order; the peer's address.
            let frames = match self.monitor.recv_multipart(zmq::DONTWAIT) {
                Ok(frames) => frames,
                Err(zmq::Error::EAGAIN) => return Ok(None),
                Err(zmq::Error::EINTR) => continue,
                Err(error) => return Err(error),
            };
            let Some(event) = frames.first().and_then(|frame| frame.first_chunk()) else { continue };
            match SocketEvent::from_raw(u16::from_ne_bytes(*event)) {
                SocketEvent::HANDSHAKE_SUCCEEDED => return Ok(Some(ConnectionEvent::Connected)),
                SocketEvent::DISCONNECTED => return Ok(Some(ConnectionEvent::Disconnected)),
                SocketEvent::HANDSHAKE_FAILED_NO_DETAIL
                | SocketEvent::HANDSHAKE_FAILED_PROTOCOL
                | SocketEvent::HANDSHAKE_FAILED_AUTH => return Ok(Some(ConnectionEvent::HandshakeFailed)),
                _ => {}
            }
        }
    }
}

// === impl ReplaySocket ===

impl ReplaySocket {
    /// A DEALER, since one question has many answers.
    pub(super) fn open(context: &Context, endpoint: &str) -> Result<Self, zmq::Error> {
        let answers = context.socket(SocketType::DEALER)?;
        prepare(&answers)?;
        // Without limit: an engine's ROUTER drops answers, in the middle and silently, when it cannot send.
        answers.set_rcvhwm(0)?;
        answers.connect(endpoint)?;
        Ok(Self { answers, is_asked: false })
    }

    /// Whether another question may be asked: answers say only their numbers, not which question they belong to.
    pub(super) fn is_free(&self) -> bool {
        !self.is_asked
    }

    /// Asks for all batches from `from` on.
    pub(super) fn ask(&mut self, from: u64) -> Result<(), zmq::Error> {
        self.is_asked = true;
        self.answers.send_multipart(frames::replay_request(from), zmq::DONTWAIT)
    }

    /// The end marker came.
    pub(super) fn end(&mut self) {
        self.is_asked = false;
    }
}

fn prepare(socket: &Socket) -> Result<(), zmq::Error> {
    socket.set_linger(0)?;
    socket.set_ipv6(true)?;
    socket.set_maxmsgsize(MESSAGE_BYTES_MAX)?;
    socket.set_reconnect_ivl(RECONNECT_MS.0)?;
    socket.set_reconnect_ivl_max(RECONNECT_MS.1)?;
    socket.set_heartbeat_ivl(HEARTBEAT_MS)?;
    socket.set_heartbeat_timeout(HEARTBEAT_TIMEOUT_MS)
}
