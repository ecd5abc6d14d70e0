//! The only place that knows gRPC codes.

use tonic::Status;

use super::convert::Invalid;

/// The caller's mistake: repeating the request would not help.
pub fn invalid(invalid: Invalid) -> Status {
    Status::invalid_argument(invalid.to_string())
}

/// Others are served; later there may be a turn.
pub fn served_at_once(count: usize) -> Status {
    Status::resource_exhausted(format!("{count} others are served at the moment"))
}

/// A follower that could not keep up, or the end of the program: following anew gives a fresh snapshot.
pub fn follow_again(why: &'static str) -> Status {
    Status::unavailable(why)
}

/// A follower without a name.
pub fn invalid_follower() -> Status {
    Status::invalid_argument("follower_id: names no indexer")
}
