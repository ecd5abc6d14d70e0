//! KV events and the block index: everything that can be decided about the caches of engines without I/O or a clock.
//!
//! ```text
//! frames ─▶ decode ─▶ Batch ─┐
//!              sequence ─▶ Sequencer ─▶ Apply / Clear / AskReplay ─▶ Index ◀─ hits(keys)
//! ```
//!
//! In: raw event payloads, sequence numbers, connection changes, the time. Out: which batches to apply, what to ask
//! again, and per stream how many leading tokens of a prompt it holds. The caller owns sockets, threads and the clock.

pub mod decode;
pub mod event;
#[cfg(test)]
mod hex;
pub mod index;
pub mod key;
pub mod native_hash;
pub mod prompt_keys;
pub mod sequencer;
mod sip;
pub mod stream;

pub use decode::{DecodeError, decode_batch, made_at, may_be_of_rank, told_rank};
pub use event::{Batch, EngineHash, Event};
pub use index::{Hit, Hits, Index, IndexLimits};
pub use key::{BlockKey, KeyHasher, Namespace};
pub use prompt_keys::{KeyPart, KeyPlan, KeyRun, KeyState, PromptKeys};
pub use sequencer::{Action, Input, Sequencer, SequencerConfig};
pub use stream::{DegradedBy, Millis, StaleBy, StreamId, Trust};
