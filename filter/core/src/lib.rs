//! What Warmpath decides, without I/O, clock, randomness or SDK.
//!
//! The same code runs in Envoy (wasm), in the indexer and in the lab. In the proxy, [`gateway::Gateway`] owns all state
//! of a worker: the [`session`]s of its requests and, in [`worker`], the [`circuit`], the [`ring`] and the [`report`]s.
//! The shell around it turns callbacks into inputs and effects into host calls.

pub mod body;
pub mod circuit;
pub mod clock;
pub mod config;
pub mod followed;
pub mod gateway;
pub mod headers;
mod json;
pub mod limits;
pub mod outcome;
pub mod path;
pub mod rank;
mod rendezvous;
pub mod report;
pub mod request;
pub mod response;
pub mod ring;
pub mod session;
pub mod usage;
pub mod worker;
