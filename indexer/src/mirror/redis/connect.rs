//! A connection to whatever is configured: one server, the master that sentinels name, or a cluster.

use ::redis::aio::MultiplexedConnection;
use ::redis::cluster_async::ClusterConnection;

use super::super::store::StoreError;
use super::access::RedisAccess;
use super::sentinel;
use crate::config::RedisServers;

/// Whatever takes commands.
#[derive(Clone)]
pub(super) enum Connection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Connects; the caller limits the time.
pub(super) async fn connect(access: &RedisAccess) -> Result<Connection, StoreError> {
    match access.servers() {
        RedisServers::One { redis } => access.server(redis).await.map(Connection::Server),
        RedisServers::Cluster { cluster } => access.cluster(cluster).await.map(Connection::Cluster),
        RedisServers::Sentinels { sentinels, master, .. } => {
            sentinel::connect(access, sentinels, master).await.map(Connection::Server)
        }
    }
}
