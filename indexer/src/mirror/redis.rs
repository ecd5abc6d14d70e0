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

use super::store::{Agreed, Secret, Store, StoreError, StreamName};

mod access;
mod backoff;
mod connect;
mod link;
mod sentinel;

pub use access::RedisAccess;
use link::Link;

/// What `PTTL` says of a key that never expires.
const NEVER_EXPIRES: i64 = -1;

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
}

impl Store for RedisStore {
    async fn agree(&self, own: Secret) -> Result<Agreed, StoreError> {
        let key = self.key("secret");
        let mut set = cmd("SET");
        set.arg(&key).arg(&own[..]).arg("NX");
        let set: Option<String> = self.link.ask(&set).await?;
        let mut get = cmd("GET");
        get.arg(&key);
        let kept: Vec<u8> = self.link.ask(&get).await?;
        let secret = kept.try_into().map_err(|_| StoreError::Foreign("secret"))?;
        Ok(Agreed { secret, is_new: set.is_some() })
    }

    fn expiry(&self) -> Duration {
        self.expiry
    }

    async fn names(&self) -> Result<Vec<String>, StoreError> {
        let mut names = cmd("ZREVRANGE");
        names.arg(self.key("streams")).arg(0).arg(-1);
        self.link.ask(&names).await
    }

    async fn image(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        let mut get = cmd("GET");
        get.arg(self.key(&format!("image:{name}")));
        let image: Option<Vec<u8>> = self.link.ask(&get).await?;
        if image.is_none() {
            let mut gone = cmd("ZREM");
            gone.arg(self.key("streams")).arg(name);
            self.link.ask::<()>(&gone).await?;
        }
        Ok(image.map(Bytes::from))
    }

    async fn take_turn(&self, stream: &StreamName, time: Duration) -> Result<bool, StoreError> {
        let key = self.key(&format!("turn:{stream}"));
        let mut set = cmd("SET");
        set.arg(&key).arg(1).arg("NX").arg("PX").arg(millis(time));
        let taken: Option<String> = self.link.ask(&set).await?;
        if taken.is_some() {
            return Ok(true);
        }
        // Somebody else's key here would keep everybody from saving for ever.
        let mut left = cmd("PTTL");
        left.arg(&key);
        match self.link.ask(&left).await? {
            NEVER_EXPIRES => Err(StoreError::Foreign("turn")),
            _ => Ok(false),
        }
    }

    async fn save(&self, stream: &StreamName, image: Bytes) -> Result<(), StoreError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut set = cmd("SET");
        set.arg(self.key(&format!("image:{stream}"))).arg(&image[..]).arg("PX").arg(millis(self.expiry));
        self.link.ask::<()>(&set).await?;
        let mut add = cmd("ZADD");
        add.arg(self.key("streams")).arg(millis(now)).arg(stream.to_string());
        self.link.ask(&add).await
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
