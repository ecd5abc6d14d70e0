//! A store in Redis.
//!
//! | key | type | holds |
//! |---|---|---|
//! | `{prefix}:secret` | string | the secret of the block keys |
//! | `{prefix}:streams` | sorted set | names of the streams with an image, by the time of saving in ms since 1970 |
//! | `{prefix}:image:NAME` | string, expires | the image of a stream |
//! | `{prefix}:turn:NAME` | string, expires | somebody saves this stream now |
//!
//! The braces are part of the keys: they put all of them into one slot of a cluster, which commands on several keys need.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::redis::aio::{ConnectionManager, ConnectionManagerConfig};
use ::redis::{Client, Cmd, FromRedisValue, IntoConnectionInfo, Pipeline, RedisConnectionInfo, cmd, pipe};
use bytes::Bytes;
use tokio::time::timeout;

use super::store::{Agreed, Secret, Store, StoreError, StreamName};

/// Images asked for at once: some megabytes each.
const IMAGES_PER_COMMAND: usize = 4;
/// A connection that is lost is made anew at the next command, which then fails or not: the saver has its own pace.
const RECONNECTS: usize = 1;

/// One Redis server.
#[derive(Clone)]
pub struct RedisStore {
    connection: ConnectionManager,
    prefix: String,
    expiry: Duration,
    timeout: Duration,
}

/// How to reach it.
#[derive(Clone, Debug)]
pub struct RedisAccess {
    pub host: String,
    pub port: u16,
    pub database: u32,
    pub username: Option<String>,
    pub password: Option<String>,
}

// === impl RedisStore ===

impl RedisStore {
    /// Connects at the first use. Must be called within the runtime.
    ///
    /// # Errors
    /// Where the client library takes no such settings.
    pub fn new(
        access: RedisAccess,
        prefix: &str,
        expiry: Duration,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        let mut settings = RedisConnectionInfo::default().set_db(access.database.into());
        if let Some(username) = access.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = access.password {
            settings = settings.set_password(password);
        }
        let info = (access.host, access.port).into_connection_info()?.set_redis_settings(settings);
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(RECONNECTS)
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(Some(timeout));
        let connection = ConnectionManager::new_lazy_with_config(Client::open(info)?, config)?;
        Ok(Self { connection, prefix: format!("{{{prefix}}}"), expiry, timeout })
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    async fn ask<T: FromRedisValue>(&self, command: Cmd) -> Result<T, StoreError> {
        let mut connection = self.connection.clone();
        // Beside the library's own limits, which begin anew with each attempt to connect.
        let answer = timeout(self.timeout * 2, command.query_async(&mut connection)).await;
        Ok(answer.map_err(|_| StoreError::Late(self.timeout * 2))??)
    }

    async fn ask_all<T: FromRedisValue>(&self, commands: Pipeline) -> Result<T, StoreError> {
        let mut connection = self.connection.clone();
        let answer = timeout(self.timeout * 2, commands.query_async(&mut connection)).await;
        Ok(answer.map_err(|_| StoreError::Late(self.timeout * 2))??)
    }
}

impl Store for RedisStore {
    async fn agree(&self, own: Secret) -> Result<Agreed, StoreError> {
        let key = self.key("secret");
        let mut commands = pipe();
        commands.cmd("SET").arg(&key).arg(&own[..]).arg("NX").cmd("GET").arg(&key);
        let (set, kept): (Option<String>, Vec<u8>) = self.ask_all(commands).await?;
        let secret = kept.try_into().map_err(|_| StoreError::Foreign("secret"))?;
        Ok(Agreed { secret, is_new: set.is_some() })
    }

    fn expiry(&self) -> Duration {
        self.expiry
    }

    async fn images(&self) -> Result<Vec<Bytes>, StoreError> {
        // The newest first, should there be no room for all.
        let mut names = cmd("ZREVRANGE");
        names.arg(self.key("streams")).arg(0).arg(-1);
        let names: Vec<String> = self.ask(names).await?;
        let mut images = Vec::with_capacity(names.len());
        for names in names.chunks(IMAGES_PER_COMMAND) {
            let mut get = cmd("MGET");
            for name in names {
                get.arg(self.key(&format!("image:{name}")));
            }
            let found: Vec<Option<Vec<u8>>> = self.ask(get).await?;
            let mut gone = cmd("ZREM");
            gone.arg(self.key("streams"));
            let mut are_gone = false;
            for (name, image) in names.iter().zip(found) {
                match image {
                    Some(image) => images.push(image.into()),
                    None => {
                        gone.arg(name);
                        are_gone = true;
                    }
                }
            }
            if are_gone {
                self.ask::<()>(gone).await?;
            }
        }
        Ok(images)
    }

    async fn take_turn(&self, stream: &StreamName, time: Duration) -> Result<bool, StoreError> {
        let mut set = cmd("SET");
        set.arg(self.key(&format!("turn:{stream}"))).arg(1).arg("NX").arg("PX").arg(millis(time));
        let taken: Option<String> = self.ask(set).await?;
        Ok(taken.is_some())
    }

    async fn save(&self, stream: &StreamName, image: Bytes) -> Result<(), StoreError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut commands = pipe();
        commands
            .cmd("SET")
            .arg(self.key(&format!("image:{stream}")))
            .arg(&image[..])
            .arg("PX")
            .arg(millis(self.expiry))
            .ignore()
            .cmd("ZADD")
            .arg(self.key("streams"))
            .arg(millis(now))
            .arg(stream.to_string())
            .ignore();
        self.ask_all(commands).await
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
