//! The inside of one data-parallel rank: block pool, continuous batching and the timing model, in virtual time.
//!
//! In come [`Request`]s and a clock reading, out go [`Effects`]: the tokens made and the batches of [`KvEvent`]s
//! published until then. Everything is a pure function of the calls made, so the same calls give the same effects. No
//! sockets, no threads, no wall clock: a simulator can drive it as well as the server can.
//!
//! ```text
//! Request ─▶ Engine::submit ─▶ waiting ─▶ running ─▶ Effects { tokens, batches }
//!                                 ▲          │
//!                                 └──────────┘ preemption: the pool has no block left
//! ```

mod cache;
mod engine;
mod events;
mod hash;
mod pool;
mod sequence;
mod timing;

pub use engine::{Batch, Counters, Effects, Engine, EngineConfig, Snapshot, SubmitError, Token};
pub use events::{KvEvent, Stored};
pub use hash::{Digest, ExtraKey, Seed};
pub use pool::CachedBlock;
pub use sequence::{Lora, Request, RequestId};
pub use timing::Timing;
