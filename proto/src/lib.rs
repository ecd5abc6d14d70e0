//! The `warmpath.v1` messages, and with the feature `grpc` their client and server.
//!
//! The code under `generated/` is made from `warmpath/v1/*.proto` by `tests/codegen.rs`, which also fails when the
//! two differ; so nobody needs a protobuf compiler to build Warmpath.

/// Version 1 of the contract between filter and indexer.
#[allow(
    unreachable_pub,
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::large_enum_variant,
    reason = "generated code; which of these it breaks depends on the generator and on the feature"
)]
pub mod v1 {
    include!("generated/warmpath.v1.rs");
}
