//! The connections of the admin listener, of which there are few: who opens many, or sends half a request, takes none of the
//! descriptors that requests and events need.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// Connections at the same time. A further one takes the place of the oldest: people, probes and scrapers have a handful.
pub const CONNECTIONS_MAX: usize = 128;
/// Within this a request's head has to come, the next one on a kept connection too: longer than scrapes are apart.
const HEAD_MAX: Duration = Duration::from_secs(120);
/// Pause after the system gave no connection for lack of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Those that are open, the oldest first.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    order: VecDeque<AbortHandle>,
}

/// Answers until `stop`, and then what was asked before.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let mut connections = Connections::default();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.tasks.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => connections.open(answer(stream, router.clone(), stop.clone())),
            // Of who asked, not ours.
            Err(error)
                if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) => {}
            Err(error) => {
                tracing::warn!(%error, "the admin listener got no connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.tasks.join_next().await.is_some() {}
}

/// Everything that is asked on one connection.
async fn answer(stream: TcpStream, router: Router, stop: CancellationToken) {
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the admin listener broke");
    }
}

// === impl Connections ===

impl Connections {
    fn open(&mut self, answering: impl Future<Output = ()> + Send + 'static) {
        self.order.retain(|task| !task.is_finished());
        if self.order.len() >= CONNECTIONS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            oldest.abort();
        }
        self.order.push_back(self.tasks.spawn(answering));
    }
}
