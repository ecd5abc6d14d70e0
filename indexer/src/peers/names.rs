//! Follows every indexer that a configured name stands for: looks the names up again and again, and keeps a follower for
//! each address ([`Roster`]).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::follow::{Ear, Follower};
use super::roster::Roster;
use crate::config::HostPort;
use crate::logs::News;
use crate::resolve::{ResolveError, Resolver};

/// How often a name is looked up: an indexer that has come decides alone for this long.
pub const REFRESH: Duration = Duration::from_secs(5);
/// A resolver that does not answer must not hold back the next try for long.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The configured peers.
#[derive(Debug)]
pub struct PeerNames {
    pub names: Vec<HostPort>,
    pub resolver: Resolver,
    /// Between two lookups of a name.
    pub refresh: Duration,
    pub ear: Ear,
}

// === impl PeerNames ===

impl PeerNames {
    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut roster = Roster::default();
        // Each ends with its name, and the address that was followed.
        let mut followers: JoinSet<(HostPort, SocketAddr)> = JoinSet::new();
        let mut news: Vec<News> = vec![News::default(); self.names.len()];
        let begun = (0..).zip(&self.names).map(|(number, name)| self.look_up(number, name, Duration::ZERO));
        let mut lookups: FuturesUnordered<_> = begun.collect();
        for name in &self.names {
            // Shown from the start, as none.
            self.ear.metrics.connected_to(name);
        }
        let follow = |followers: &mut JoinSet<_>, name: HostPort, address, listed| {
            let follower = Follower { name: name.clone(), address, listed, ear: self.ear.clone() };
            let stop = stop.clone();
            followers.spawn(async move {
                follower.run(stop).await;
                (name, address)
            });
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some((number, name, answer)) = lookups.next() => {
                    let new = match answer {
                        Ok(addresses) => roster.hear(number, addresses),
                        Err(error) => {
                            let is_news = |news: &mut News| news.is_news("failed", Instant::now());
                            if news.get_mut(number).is_some_and(is_news) {
                                tracing::warn!(peer = %name, %error, "cannot look up peers; following those known");
                            }
                            Vec::new()
                        }
                    };
                    for (address, listed) in new {
                        follow(&mut followers, name.clone(), address, listed);
                    }
                    lookups.push(self.look_up(number, name, self.refresh));
                }
                Some(ended) = followers.join_next() => match ended {
                    Ok((name, address)) => {
                        if let Some(listed) = roster.ended(address) {
                            follow(&mut followers, name, address, listed);
                        }
                    }
                    // A defect; where it was silent, this indexer would decide alone and nobody would know.
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(_cancelled) => {}
                    },
                }
            }
        }
        while followers.join_next().await.is_some() {}
    }

    async fn look_up<'a>(
        &'a self,
        number: usize,
        name: &'a HostPort,
        after: Duration,
    ) -> (usize, &'a HostPort, Result<Vec<SocketAddr>, ResolveError>) {
        tokio::time::sleep(after).await;
        (number, name, self.resolver.addresses(name.host(), name.port(), LOOKUP_TIMEOUT).await)
    }
}
