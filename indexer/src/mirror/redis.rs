//! A store in Redis: one server, the master that sentinels know, or a cluster.
//!
//! | key | type | holds |
//! |---|---|---|
//! | `{prefix}:secret` | string | the secret of the block keys |
//! | `{prefix}:streams` | sorted set | names of the streams with an image, by the time of saving in ms since 1970 |
//! | `{prefix}:image:NAME` | string, expires | the image of a stream |
//! | `{prefix}:turn:NAME` | string, expires | somebody saves this stream now |
//!
//! The braces are part of the keys: they put all of them into one slot of a cluster, so that one node has all or none of
//! them. Commands are sent one by one: where a cluster redirects, its client would repeat a pipeline whole.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::redis::cmd;
use bytes::Bytes;

use super::room::Room;
use super::secret::Secret;
use super::store::{Agreed, Forgotten, Store, StoreError, StreamName};

mod access;
mod backoff;
mod connect;
mod link;
mod sentinel;

pub use access::RedisAccess;
use link::Link;

/// What `PTTL` says of a key that never expires, and of one that is not there.
const NEVER_EXPIRES: i64 = -1;
const NOT_THERE: i64 = -2;

/// Attempts to read an image that is replaced meanwhile, which happens every ten seconds by default.
const READS_MAX: usize = 3;
/// Streams of one store: more than any fleet has.
const NAMES_MAX: i64 = 1 << 16;
/// Names looked at for expired images at once: a command for each.
const NAMES_AT_ONCE: i64 = 32;

/// See the module's documentation.
#[derive(Clone)]
pub struct RedisStore {
    link: Link,
    prefix: String,
    expiry: Duration,
}

// === impl RedisStore ===

impl RedisStore {
    /// Connects at the first use. Images are kept for `expiry`.
    pub fn new(access: RedisAccess, prefix: &str, expiry: Duration) -> Self {
        Self { link: Link::new(access), prefix: format!("{{{prefix}}}"), expiry }
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    /// Of an image in bytes; 0: there is none.
    async fn length(&self, name: &str) -> Result<usize, StoreError> {
        let mut length = cmd("STRLEN");
        length.arg(self.key(&format!("image:{name}")));
        self.link.ask(&length).await
    }

    /// Enters a name among those with an image, with the time that it is.
    async fn name(&self, name: &str) -> Result<(), StoreError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut add = cmd("ZADD");
        add.arg(self.key("streams")).arg(millis(now)).arg(name);
        self.link.ask(&add).await
    }

    /// Takes out a name whose image has expired. False: another indexer saved a new one at that moment, so the name stays:
    /// an image is set before its name, hence whichever of the two came first, one of us enters it.
    async fn forget(&self, name: &str) -> Result<bool, StoreError> {
        let mut gone = cmd("ZREM");
        gone.arg(self.key("streams")).arg(name);
        self.link.ask::<()>(&gone).await?;
        let is_gone = self.length(name).await? == 0;
        if !is_gone {
            self.name(name).await?;
        }
        Ok(is_gone)
    }
}

impl Store for RedisStore {
    async fn agree(&self, own: Secret) -> Result<Agreed, StoreError> {
        let key = self.key("secret");
        let mut set = cmd("SET");
        set.arg(&key).arg(&own[..]).arg("NX");
        let set: Option<String> = self.link.ask(&set).await?;
        let secret = self.secret().await?.ok_or(StoreError::Foreign("secret"))?;
        Ok(Agreed { secret, is_new: set.is_some() })
    }

    async fn secret(&self) -> Result<Option<Secret>, StoreError> {
        // No more than can be a secret, and a byte to find out what is none.
        let mut get = cmd("GETRANGE");
        get.arg(self.key("secret")).arg(0).arg(size_of::<Secret>());
        let kept: Vec<u8> = self.link.ask(&get).await?;
        let of_bytes = |kept: Vec<u8>| kept.try_into().map_err(|_| StoreError::Foreign("secret"));
        (!kept.is_empty()).then_some(kept).map(of_bytes).transpose()
    }

    fn expiry(&self) -> Duration {
        self.expiry
    }

    async fn names(&self) -> Result<Vec<String>, StoreError> {
        let mut names = cmd("ZREVRANGE");
        names.arg(self.key("streams")).arg(0).arg(NAMES_MAX - 1);
        self.link.ask(&names).await
    }

    async fn image(&self, name: &str, room: &Room) -> Result<Option<Bytes>, StoreError> {
        for _ in 0..READS_MAX {
            let bytes = self.length(name).await?;
            if bytes == 0 {
                return match self.forget(name).await {
                    // It was only to be tidied up.
                    Err(error) if !error.is_of_writing() => Err(error),
                    _ => Ok(None),
                };
            }
            if !room.take(bytes) {
                return Err(StoreError::TooLarge { bytes });
            }
            // One byte more than there should be: whoever replaced it meanwhile is found out, at no greater cost.
            let mut get = cmd("GETRANGE");
            get.arg(self.key(&format!("image:{name}"))).arg(0).arg(bytes);
            let image: Vec<u8> = self.link.ask(&get).await.inspect_err(|_| room.give_back(bytes))?;
            if image.len() == bytes {
                return Ok(Some(Bytes::from(image)));
            }
            room.give_back(bytes);
        }
        Err(StoreError::Replaced)
    }

    async fn forget_expired(&self, from: usize) -> Result<Forgotten, StoreError> {
        let start = i64::try_from(from).unwrap_or(i64::MAX);
        // From the end, where those are that were saved first.
        let mut range = cmd("ZREVRANGE");
        range
            .arg(self.key("streams"))
            .arg(-start.saturating_add(NAMES_AT_ONCE))
            .arg(-start.saturating_add(1));
        let names: Vec<String> = self.link.ask(&range).await?;
        let looked_at = names.len();
        let mut forgotten = 0;
        for name in names {
            match self.length(&name).await {
                Ok(0) => forgotten += usize::from(self.forget(&name).await?),
                Ok(_) => {}
                // Somebody else's, which a save will replace.
                Err(error) if error.reason() == "foreign" => {}
                Err(error) => return Err(error),
            }
        }
        let is_last = i64::try_from(looked_at).is_ok_and(|looked_at| looked_at < NAMES_AT_ONCE);
        Ok(Forgotten { names: forgotten, next: if is_last { 0 } else { from + looked_at - forgotten } })
    }

    async fn has_image(&self, stream: &StreamName) -> Result<bool, StoreError> {
        let mut left = cmd("PTTL");
        left.arg(self.key(&format!("image:{stream}")));
        Ok(self.link.ask::<i64>(&left).await? != NOT_THERE)
    }

    async fn take_turn(&self, stream: &StreamName, time: Duration) -> Result<bool, StoreError> {
        let (key, time_ms) = (self.key(&format!("turn:{stream}")), millis(time));
        let mut set = cmd("SET");
        set.arg(&key).arg(1).arg("NX").arg("PX").arg(time_ms);
        let taken: Option<String> = self.link.ask(&set).await?;
        if taken.is_some() {
            return Ok(true);
        }
        // Somebody else's key here would keep everybody from saving for ever.
        let mut left = cmd("PTTL");
        left.arg(&key);
        let left_ms: i64 = self.link.ask(&left).await?;
        if left_ms == NEVER_EXPIRES {
            return Err(StoreError::Foreign("turn"));
        }
        // It was taken before the clock of the server was set back, and would last until that is there again.
        if u64::try_from(left_ms).is_ok_and(|left_ms| left_ms > time_ms) {
            let mut shorten = cmd("SET");
            shorten.arg(&key).arg(1).arg("PX").arg(time_ms);
            self.link.ask::<()>(&shorten).await?;
        }
        Ok(false)
    }

    async fn save(&self, stream: &StreamName, image: Bytes) -> Result<(), StoreError> {
        let mut set = cmd("SET");
        set.arg(self.key(&format!("image:{stream}"))).arg(&image[..]).arg("PX").arg(millis(self.expiry));
        self.link.ask::<()>(&set).await?;
        self.name(&stream.to_string()).await
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
