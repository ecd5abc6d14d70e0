//! The lab: what a policy does to the latency of a fleet, over loads of many kinds.
//!
//! ```text
//! catalogue ─▶ Load ─▶ simulation ─▶ Run ─▶ Figures ─▶ results, table, plots
//!                        │   ▲
//!                Router (the product's index and ranking)
//! ```
//!
//! The simulator has no clock, no sockets and no threads: a run is a function of load, rule and seed.

pub mod bars;
mod cache;
pub mod calibration;
pub mod deciders;
pub mod figures;
pub mod load;
pub mod outcome;
pub mod plan;
pub mod plot;
mod pool;
pub mod prompt;
mod regret;
pub mod replica;
pub mod results;
pub mod router;
pub mod rule;
mod sequence;
pub mod several;
pub mod simulation;
pub mod sweep;
pub mod table;
