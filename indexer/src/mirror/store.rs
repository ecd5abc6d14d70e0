//! Where images are kept.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ::redis::ErrorKind;
use bytes::Bytes;
use thiserror::Error;

use super::room::Room;
use super::secret::Secret;

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

/// The answer to [`Store::forget_expired`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    pub names: usize,
    /// Where the next call begins.
    pub next: usize,
}

/// Why a store did not do what it was asked.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("no answer within {} ms", .0.as_millis())]
    Late(Duration),
    #[error("{0}")]
    Redis(#[from] ::redis::RedisError),
    #[error("it holds something else under {0}: another program uses this prefix")]
    Foreign(&'static str),
    #[error("not tried for another {} ms after it failed ({reason})", .pause.as_millis())]
    Waiting { pause: Duration, reason: &'static str },
    #[error("cannot read the password from {}: {source}", .file.display())]
    Password { file: PathBuf, source: io::Error },
    #[error("no sentinel knows a master by the name {name}: check mirror.master")]
    NoMaster { name: String },
    #[error("what a sentinel names as the master is none, as during a failover")]
    NotMaster,
    #[error("an image of {bytes} bytes is more than may still be read")]
    TooLarge { bytes: usize },
    #[error("an image was replaced at each attempt to read it")]
    Replaced,
}

/// Keeps the images of one fleet, for any number of indexers. Every call ends in bounded time.
pub trait Store: Send + Sync + 'static {
    /// The secret of all images here: the one that is kept already, or else `own` from now on.
    fn agree(&self, own: Secret) -> impl Future<Output = Result<Agreed, StoreError>> + Send;

    /// The secret that is kept, if there is one; changes nothing, so a store that takes nothing answers too.
    fn secret(&self) -> impl Future<Output = Result<Option<Secret>, StoreError>> + Send;

    /// For how long an image is kept after it was saved.
    fn expiry(&self) -> Duration;

    /// The streams with an image, those saved last first; some may have expired.
    fn names(&self) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// The image of a stream, unless it has expired. Not read where there is no room for it.
    fn image(
        &self,
        name: &str,
        room: &Room,
    ) -> impl Future<Output = Result<Option<Bytes>, StoreError>> + Send;

    /// Looks at some names, and forgets those whose images have expired. Called again and again with where the last call
    /// ended, it looks at all; any number of indexers may do so at the same time.
    fn forget_expired(&self, from: usize) -> impl Future<Output = Result<Forgotten, StoreError>> + Send;

    /// Whether there is an image of this stream now: one that was saved may have been evicted, or have expired early, by a
    /// clock that was set forward.
    fn has_image(&self, stream: &StreamName) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Whether the caller is the first to ask for this stream within `time`: of several indexers, one saves.
    fn take_turn(
        &self,
        stream: &StreamName,
        time: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Keeps the image in place of an older one, until it expires.
    fn save(&self, stream: &StreamName, image: Bytes) -> impl Future<Output = Result<(), StoreError>> + Send;
}

// === impl StoreError ===

impl StoreError {
    /// For metrics: `late`, `unreachable`, `denied` (user, password or rights), `full` (its memory), `disk` (it cannot write
    /// to its disk), `read_only`, `foreign` (something else under a key), `refused` (anything else that a server says).
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Late(_) => "late",
            Self::Foreign(_) => "foreign",
            Self::Waiting { reason, .. } => reason,
            Self::Password { .. } => "denied",
            Self::NoMaster { .. } | Self::NotMaster => "unreachable",
            Self::TooLarge { .. } | Self::Replaced => "refused",
            Self::Redis(error) => of_redis(error),
        }
    }

    /// What is kept can be read all the same.
    pub(super) fn is_of_writing(&self) -> bool {
        matches!(self.reason(), "full" | "disk" | "read_only")
    }

    /// Another connection may do better; where it is the data, it will not.
    pub(super) fn is_of_the_connection(&self) -> bool {
        match self.reason() {
            "late" | "unreachable" | "denied" | "read_only" => true,
            "full" | "disk" | "foreign" => false,
            _ => matches!(self, Self::Redis(error) if error.is_unrecoverable_error()),
        }
    }
}

fn of_redis(error: &::redis::RedisError) -> &'static str {
    match error.code() {
        Some("OOM") => return "full",
        Some("MISCONF") => return "disk",
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => return "denied",
        Some("READONLY") => return "read_only",
        Some("WRONGTYPE") => return "foreign",
        Some("MASTERDOWN" | "CLUSTERDOWN" | "LOADING") => return "unreachable",
        _ => {}
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => "denied",
        ErrorKind::UnexpectedReturnType => "foreign",
        ErrorKind::Io if error.is_timeout() => "late",
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound => "unreachable",
        _ => "refused",
    }
}

// === impl StreamName ===

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.endpoint, self.rank)
    }
}
