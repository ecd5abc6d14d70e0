//! The emulator's edges, over real sockets: HTTP, event streams, faults, restarts.

mod client;
mod events;
mod faults;
mod http;
mod life;
