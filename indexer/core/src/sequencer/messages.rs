//! What a sequencer is told, and what it says to do.

use crate::index::{ClearCause, Origin};

/// What happens on a stream. `B` is a batch, decoded or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<B> {
    /// The event socket shook hands with a publisher: for the first time, or again.
    Connected,
    /// The connection closed.
    Disconnected,
    /// A batch came on the event socket.
    Published { seq: u64, batch: B },
    /// A batch came in answer to the last [`Action::AskReplay`].
    Replayed { seq: u64, batch: B },
    /// The end marker of that answer came.
    ReplayEnded,
    /// The batch `seq`, just applied, emptied the engine's cache. To be told before any other action is taken.
    Emptied { seq: u64 },
    /// The batch `seq`, just given to be applied, was no batch. To be told before any other action is taken, with those
    /// that are left.
    Undecodable { seq: u64 },
    /// The engine was seen to compute blocks that it told nothing of, for a while.
    Contradicted,
    /// The engine says that it sleeps, for which it gives its cache up; it tells so only with its next step.
    Asleep,
    /// Whether the batch just given to be compared ([`Action::Compare`]) is the one that was applied last.
    Compared { is_same: bool },
    /// Time passed.
    Tick,
}

/// What to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<B> {
    /// Apply the batch to the index.
    Apply { seq: u64, batch: B, origin: Origin },
    /// Compare the batch with the last one applied, which has the same number, and tell ([`Input::Compared`]). A batch
    /// that does not say when it was made is another one: two processes may write the same.
    Compare { seq: u64, batch: B },
    /// Forget everything that the stream holds.
    Clear(ClearCause),
    /// Ask the replay for all batches from this one on. An earlier question is given up: what still comes in answer
    /// to it must not be handed in.
    AskReplay { from: u64 },
    /// Give up the last question.
    DropReplay,
}

/// What must be known of a batch before it is decoded.
pub trait Weight {
    /// Bytes of memory.
    fn bytes(&self) -> usize;

    /// When the engine made it, by its own clock, in seconds; `None` where that is not known.
    fn made_at(&self) -> Option<f64> {
        None
    }
}
