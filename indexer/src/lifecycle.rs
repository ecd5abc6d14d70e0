//! The life of the process: owned tasks, readiness, drain.
//!
//! ```text
//! starting ──(every readiness guard dropped)──▶ ready ──(signal, or a task failed)──▶ draining ──▶ stopped
//!    └──(signal while models are loaded: nothing to drain)────────────────────────────────────────────▲
//! ```
//!
//! A signal begins the drain: readiness ends, listeners take no new work, work in flight may finish. When the drain's
//! deadline passes or a second signal comes, what is left is cut.

mod readiness;
mod signals;
mod tasks;

pub use readiness::{Readiness, ReadyGuard};
pub use signals::{EndSignals, hangups};
pub use tasks::{TaskEnd, Tasks};
