//! What Warmpath decides, without I/O, clock, randomness or SDK.
//!
//! The same code runs in Envoy (wasm), in the indexer and in the lab.

pub mod rank;
