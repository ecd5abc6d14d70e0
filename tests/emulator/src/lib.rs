//! An emulated vLLM server for tests: its HTTP API, its metrics and its KV-event stream, around a block pool and a
//! timing model that behave like the real ones. `README.md` says how true it is and where it is not.
//!
//! [`core`] is pure and can be driven in virtual time; [`Emulator`] puts sockets and a clock around it.

pub mod core;

mod clock;
mod config;
mod connection;
mod faults;
mod histogram;
mod http;
mod publisher;
mod rank;
mod requests;
mod server;
mod state;
mod text;
mod version;
mod wire;

pub use config::{ConfigError, EmulatorConfig};
pub use faults::{
    DelayOrder, ErrorOrder, EventOrder, FaultError, FaultOrder, Faults, HttpOrder, RestartOrder,
};
pub use publisher::BindError;
pub use requests::RequestRecord;
pub use server::{Addresses, Emulator, StartError};
pub use state::{BlockDump, ParentDump, RankDump, StateDump};
pub use text::{OutputVocabulary, TextError};
pub use version::{EventEncoding, UnknownVersion, VllmVersion};
pub use wire::{Encoder, HashForm};
