//! The end-to-end cases, one test binary. `tests/README.md` tells how to run one.

#[cfg(test)]
mod addresses;
#[cfg(test)]
mod answers;
#[cfg(test)]
mod bootstrap;
#[cfg(test)]
mod breaking;
#[cfg(test)]
mod browser;
#[cfg(test)]
mod bytes;
#[cfg(test)]
mod cancelled;
#[cfg(test)]
mod chaos;
#[cfg(test)]
mod circles;
#[cfg(test)]
mod clocks;
#[cfg(test)]
mod cold_start;
#[cfg(test)]
mod configuration;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod large_questions;
#[cfg(test)]
mod malformed;
#[cfg(test)]
mod many_indexers;
#[cfg(test)]
mod mirror;
#[cfg(test)]
mod models;
#[cfg(test)]
mod one_secret;
#[cfg(test)]
mod pass_through;
#[cfg(test)]
mod pools;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod routing;
#[cfg(test)]
mod scaling;
#[cfg(test)]
mod security;
#[cfg(test)]
mod sequencing;
#[cfg(test)]
mod shapes;
#[cfg(test)]
mod sizes;
#[cfg(test)]
mod soak;
#[cfg(test)]
mod templates;
#[cfg(test)]
mod terms;
#[cfg(test)]
mod tidy;
#[cfg(test)]
mod traps;
#[cfg(test)]
mod volatile_heads;
#[cfg(test)]
mod wasm;
