//! The emulator's edges, over real sockets: HTTP, event streams, faults, restarts.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

mod apis;
mod client;
mod events;
mod faults;
mod http;
mod life;
