//! The event thread over real sockets, against an engine of its own making: what a publisher and its replay socket can
//! do to a subscriber, and what must be known of the cache afterwards.
#![cfg(test)]

mod bench;
mod connections;
mod engine;
mod gaps;
mod hostile;
mod logs;
mod metrics;
mod mirror;
mod ranks;
mod sources;
