//! What must hold for any input, as functions of bytes that panic where it does not.
//!
//! Each module is one target: [`body`] (the filter's request reader), [`answer`] (its reader of answers), [`prompt`]
//! (chats rendered and encoded), [`conversions`] (the same of `/v1/responses`, `/v1/messages` and gpt-oss), [`events`] (KV
//! event payloads), [`config`] (the configuration file). `make fuzz` drives
//! them with libFuzzer; `tests/seeds.rs` runs the committed inputs through them. Beside not panicking, each compares what
//! it gets with something else: with another reader, with itself on the same input cut otherwise, or with its own output
//! read back.

pub mod answer;
pub mod body;
#[cfg(feature = "config")]
pub mod config;
#[cfg(feature = "prompt")]
pub mod conversions;
pub mod events;
#[cfg(feature = "prompt")]
mod model;
#[cfg(feature = "prompt")]
pub mod prompt;

/// A kind of input.
pub struct Target {
    /// Of its program, its module and its folder of seeds.
    pub name: &'static str,
    /// Panics where something does not hold for the input.
    pub check: fn(&[u8]),
}

/// All targets that are built.
pub const TARGETS: &[Target] = &[
    Target { name: "answer", check: answer::check },
    Target { name: "body", check: body::check },
    #[cfg(feature = "config")]
    Target { name: "config", check: config::check },
    #[cfg(feature = "prompt")]
    Target { name: "conversions", check: conversions::check },
    Target { name: "events", check: events::check },
    #[cfg(feature = "prompt")]
    Target { name: "prompt", check: prompt::check },
];
