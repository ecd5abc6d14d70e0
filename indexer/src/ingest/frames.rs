//! ZeroMQ messages ↔ what they say. The only place that knows the engine's framing.

use warmpath_kv::sequencer::Weight;
use zmq::Message;

/// Bytes of a sequence number, big-endian.
const SEQ_BYTES: usize = 8;

/// The sequence number of a replay's end marker.
const END_SEQ: [u8; SEQ_BYTES] = [0xff; SEQ_BYTES];

/// The payload of one message, not yet decoded.
#[derive(Debug)]
pub(super) struct RawBatch(pub(super) Message);

/// What one message says.
#[derive(Debug)]
pub(super) enum Framed {
    Batch {
        seq: u64,
        batch: RawBatch,
    },
    /// The end marker of a replay.
    End,
    /// Fewer than two frames, or no number of eight bytes in the last but one.
    Malformed,
}

impl PartialEq for RawBatch {
    fn eq(&self, other: &Self) -> bool {
        self.0[..] == other.0[..]
    }
}

impl Weight for RawBatch {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn made_at(&self) -> Option<f64> {
        warmpath_kv::made_at(&self.0)
    }
}

/// Reads one message without waiting; `None`: there is none.
///
/// A published message is topic, number, payload. A replay's answer has an empty frame first, then number and payload,
/// with the topic between from vLLM 0.26 on. So in all of them the last two frames tell everything.
pub(super) fn receive(socket: &zmq::Socket) -> Result<Option<Framed>, zmq::Error> {
    let mut last = None;
    loop {
        let frame = match socket.recv_msg(zmq::DONTWAIT) {
            Ok(frame) => frame,
            // ZeroMQ hands over whole messages, so this is only ever seen before the first frame.
            Err(zmq::Error::EAGAIN) => return Ok(None),
            Err(zmq::Error::EINTR) => continue,
            Err(error) => return Err(error),
        };
        let has_more = frame.get_more();
        let last_but_one = last.replace(frame);
        if !has_more {
            return Ok(Some(read(last_but_one, last)));
        }
    }
}

fn read(number: Option<Message>, payload: Option<Message>) -> Framed {
    let (Some(number), Some(payload)) = (number, payload) else { return Framed::Malformed };
    match <[u8; SEQ_BYTES]>::try_from(&*number) {
        Ok(END_SEQ) => Framed::End,
        Ok(seq) => Framed::Batch { seq: u64::from_be_bytes(seq), batch: RawBatch(payload) },
        Err(_) => Framed::Malformed,
    }
}

/// The frames of a replay request for all batches from `from` on: the engine answers to exactly these two.
pub(super) fn replay_request(from: u64) -> [Vec<u8>; 2] {
    [Vec::new(), from.to_be_bytes().to_vec()]
}
