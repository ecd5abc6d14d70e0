//! Where images are kept.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;

/// Of the block keys.
pub type Secret = [u8; 16];

/// A stream by what all indexers call it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamName {
    /// `ip:port` of the engine.
    pub endpoint: String,
    pub rank: u32,
}

/// The answer to [`Store::agree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    pub secret: Secret,
    /// There was none until now: nothing is kept yet, or nothing any more.
    pub is_new: bool,
}

/// Why a store did not do what it was asked.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("no answer within {} ms", .0.as_millis())]
    Late(Duration),
    #[error("{0}")]
    Redis(#[from] ::redis::RedisError),
    #[error("it holds something else under {0}")]
    Foreign(&'static str),
}

/// Keeps the images of one fleet, for any number of indexers. Every call ends in bounded time.
pub trait Store: Send + Sync + 'static {
    /// The secret of all images here: the one that is kept already, or else `own` from now on.
    fn agree(&self, own: Secret) -> impl Future<Output = Result<Agreed, StoreError>> + Send;

    /// For how long an image is kept after it was saved.
    fn expiry(&self) -> Duration;

    /// Every image that has not expired.
    fn images(&self) -> impl Future<Output = Result<Vec<Bytes>, StoreError>> + Send;

    /// Whether the caller is the first to ask for this stream within `time`: of several indexers, one saves.
    fn take_turn(
        &self,
        stream: &StreamName,
        time: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Keeps the image in place of an older one, until it expires.
    fn save(&self, stream: &StreamName, image: Bytes) -> impl Future<Output = Result<(), StoreError>> + Send;
}

// === impl StreamName ===

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.endpoint, self.rank)
    }
}
