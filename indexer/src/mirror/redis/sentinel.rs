//! Finds the master that sentinels watch.
//!
//! All sentinels are asked at once, and what each of them names is asked for its role: one that is gone, hangs or is
//! behind after a failover costs nothing as long as another one is right.

use ::redis::aio::MultiplexedConnection;
use ::redis::{Value, cmd};
use futures::stream::{FuturesUnordered, StreamExt};

use super::super::store::StoreError;
use super::access::RedisAccess;
use crate::config::HostPort;

/// A connection to the server that is the master now.
pub(super) async fn connect(
    access: &RedisAccess,
    sentinels: &[HostPort],
    master: &str,
) -> Result<MultiplexedConnection, StoreError> {
    let asked = sentinels.iter().map(|sentinel| by_way_of(access, sentinel, master));
    let mut asked = asked.collect::<FuturesUnordered<_>>();
    let mut failed = StoreError::NoMaster { name: master.to_owned() };
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(connection) => return Ok(connection),
            // One that does not know the name says more than one that does not answer.
            Err(StoreError::NoMaster { .. }) => {}
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn by_way_of(
    access: &RedisAccess,
    sentinel: &HostPort,
    master: &str,
) -> Result<MultiplexedConnection, StoreError> {
    let mut connection = access.sentinel(sentinel).await?;
    let mut ask = cmd("SENTINEL");
    ask.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let named: Option<(String, u16)> = ask.query_async(&mut connection).await?;
    let (host, port) = named.ok_or_else(|| StoreError::NoMaster { name: master.to_owned() })?;
    let mut connection = access.server(&HostPort::new(host, port)).await?;
    // The first of the role's parts is its name.
    let role: Vec<Value> = cmd("ROLE").query_async(&mut connection).await?;
    match role.first() {
        Some(Value::BulkString(name)) if name == b"master" => Ok(connection),
        _ => Err(StoreError::NotMaster),
    }
}
