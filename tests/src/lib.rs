//! The harness of the end-to-end cases and of the demo: real Envoy with the real filter, real indexers, emulated
//! engines.
//!
//! [`case::case`] runs a case: it starts a [`stack::Stack`], hands it to the case, checks what must hold after every
//! case, and prints all logs where something does not. Whoever starts a process owns it: everything ends when its
//! owner is dropped, by its own process id, and dies with this program should that be killed.
//!
//! In reading order: what is started ([`engine`], [`recorder`], [`indexer`], [`scripted`], [`envoy`], all of
//! them in [`stack`], with models from [`model_folders`]), what a case does with it ([`case`], [`browser`], [`client`], [`eventually`], [`metrics`], [`prompts`], [`load`]), what is
//! compared afterwards ([`audit`], [`lab`], and [`soak`] and [`chaos`] with faults for hours, [`mirror_load`] with the streams of [`churn`]), and what they stand on ([`process`],
//! [`machine`], [`ports`], [`paths`]).

#![expect(
    clippy::indexing_slicing,
    reason = "JSON is read and changed by key; a case that meets another shape fails"
)]

pub mod audit;
pub mod browser;
pub mod case;
pub mod chaos;
pub mod churn;
pub mod client;
pub mod demo;
pub mod engine;
pub mod envoy;
pub mod eventually;
pub mod indexer;
pub mod lab;
pub mod load;
pub mod machine;
pub mod metrics;
pub mod mirror_load;
pub mod model_folders;
pub mod paths;
pub mod ports;
pub mod process;
pub mod prompts;
pub mod recorder;
pub mod redis;
pub mod scripted;
pub mod soak;
pub mod stack;
