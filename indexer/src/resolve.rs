//! Names → addresses, in bounded time.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use thiserror::Error;
use tokio::net::lookup_host;
use tokio::time::timeout;

type Answer = io::Result<Vec<SocketAddr>>;

/// Asks for the addresses of names. Clones ask the same.
#[derive(Clone)]
pub struct Resolver(Arc<dyn Fn(String, u16) -> BoxFuture<'static, Answer> + Send + Sync>);

/// Why there is no answer. It says nothing about what has the name.
#[derive(Debug, Error)]
pub enum ResolveError {
    #[error("{0}")]
    Failed(#[from] io::Error),
    #[error("no answer within {} ms", .0.as_millis())]
    Late(Duration),
}

// === impl Resolver ===

impl Resolver {
    /// That of the operating system.
    pub fn system() -> Self {
        Self::of(|host, port| async move { Ok(lookup_host((host.as_str(), port)).await?.collect()) })
    }

    /// One that answers in this way.
    pub fn of<F>(answer: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Self(Arc::new(move |host, port| answer(host, port).boxed()))
    }

    /// The addresses of `host`, each with `port`; there may be none.
    pub async fn addresses(
        &self,
        host: &str,
        port: u16,
        patience: Duration,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        match timeout(patience, (self.0)(host.to_owned(), port)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(ResolveError::Late(patience)),
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_is_its_own_and_a_resolver_that_is_silent_is_late() {
        let asked = Resolver::system().addresses("127.0.0.1", 7, Duration::from_secs(60)).await;
        assert_eq!(asked.unwrap(), [SocketAddr::from(([127, 0, 0, 1], 7))]);
        let silent = Resolver::of(|_, _| std::future::pending());
        let asked = silent.addresses("name", 7, Duration::from_millis(1)).await;
        assert!(matches!(asked, Err(ResolveError::Late(_))), "{asked:?}");
    }
}
