//! The indexer: knows which endpoint holds which prefix and how busy each is, and ranks endpoints for every request.
//!
//! ```text
//!             Score ─▶ rpc ─▶ decide ─▶ ranking         (hot path)
//!            Report ─▶ rpc ─▶ report ─▶ books           (reservations: ledger)
//!        KV events ─▶ ingest ─▶ index                   (warmpath-kv)
//! DNS, /metrics ────▶ fleet ─▶ fleet_driver ─▶ view, ingest, books      (which endpoints exist, how busy they say they are)
//!   other indexers ◀▶ peers ◀▶ books
//! ```
//!
//! [`app`] wires the parts and is the only one that knows them all.

pub mod admin;
pub mod agreement;
pub mod answers;
pub mod app;
pub mod books;
pub mod check;
pub mod clock;
pub mod config;
pub mod decide;
pub mod drift;
pub mod engines;
pub mod evidence;
pub mod explain;
pub mod fleet;
pub mod fleet_driver;
pub mod housekeeping;
pub mod http;
pub mod ingest;
pub mod ledger;
pub mod lengths;
pub mod lifecycle;
pub mod logs;
pub mod mirror;
pub mod models;
pub mod peers;
pub mod receipts;
pub mod report;
pub mod reported;
pub mod resolve;
pub mod rpc;
pub mod sources;
pub mod start;
pub mod volatile;
pub mod warmup;

#[cfg(test)]
#[path = "../tests/program/test_model.rs"]
mod test_model;
