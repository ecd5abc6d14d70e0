//! Asks every engine what it is, on a slow beat.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use warmpath_prompt::EngineVersion;

use super::metrics::{EngineMetrics, QuestionLabels};
use super::{Census, Directory, ListedAdapter, answers, sockets};
use crate::clock::Clock;
use crate::config::Scrape;
use crate::fleet::{Endpoint, Observation, RankSource, View};
use crate::http::{AskError, EngineClient};

/// Engines asked at the same time.
const CONCURRENT: usize = 16;
/// Largest answer read, in bytes: a list of thousands of adapters.
const ANSWER_MAX: usize = 4 << 20;
/// How often it is looked whether an engine's turn has come; so a new endpoint is asked this soon, or within the
/// configured interval where that is shorter.
const LOOK_MS: u64 = 1_000;

/// Owns the census, and publishes the directory.
pub struct Poller {
    client: EngineClient,
    clock: Clock,
    view: Arc<View>,
    census: Census,
    directory: watch::Sender<Arc<Directory>>,
    metrics: EngineMetrics,
    look: Duration,
}

/// What one engine answered.
struct Round {
    address: SocketAddr,
    adapters: Option<Vec<ListedAdapter>>,
    version: Option<EngineVersion>,
    /// None: it was not asked, or gave no answer.
    sources: Option<Vec<RankSource>>,
}

// === impl Poller ===

impl Poller {
    /// A poller, and where its directory is read.
    pub fn new(
        config: Scrape,
        clock: Clock,
        view: Arc<View>,
        metrics: EngineMetrics,
    ) -> (Self, watch::Receiver<Arc<Directory>>) {
        let (directory, reader) = watch::channel(Arc::default());
        let poller = Self {
            client: EngineClient::new(Duration::from_millis(config.timeout_ms)),
            clock,
            view,
            census: Census::new(config.identity_interval_ms),
            directory,
            metrics,
            look: Duration::from_millis(config.identity_interval_ms.min(LOOK_MS)),
        };
        (poller, reader)
    }

    /// Runs until `stop`. `observations`: who is told where ranks publish.
    pub async fn run(mut self, observations: mpsc::Sender<Observation>, stop: CancellationToken) {
        let mut looks = interval(self.look);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = looks.tick() => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.round(&observations) => {}
            }
        }
    }

    /// Asks whose turn it is, and publishes the directory where that changes it.
    async fn round(&mut self, observations: &mpsc::Sender<Observation>) {
        let (fleet, now) = (self.view.current(), self.clock.now());
        let due: Vec<Endpoint> = fleet
            .endpoints
            .iter()
            .filter(|endpoint| self.census.is_due(endpoint.spec.address, now))
            .cloned()
            .collect();
        let (client, metrics) = (&self.client, &self.metrics);
        let rounds = due.into_iter().map(|endpoint| ask(client, metrics, endpoint));
        let rounds: Vec<Round> = futures::stream::iter(rounds).buffer_unordered(CONCURRENT).collect().await;
        let now = self.clock.now();
        for Round { address, adapters, version, sources } in rounds {
            self.census.note(address, adapters, version, now);
            if let Some(sources) = sources
                && observations.send(Observation::Told { address, sources }).await.is_err()
            {
                tracing::debug!("the fleet is stopping; what an engine said is dropped");
            }
        }
        let directory = self.census.directory(&fleet, now);
        self.directory.send_if_modified(|current| {
            let is_new = **current != directory;
            if is_new {
                *current = Arc::new(directory);
            }
            is_new
        });
    }
}

async fn ask(client: &EngineClient, metrics: &EngineMetrics, endpoint: Endpoint) -> Round {
    let version = question(client, metrics, &endpoint, "version", "/version").await;
    let models = question(client, metrics, &endpoint, "models", "/v1/models").await;
    let address = endpoint.spec.address;
    let sources = if endpoint.spec.asks_engine() {
        let body = question(client, metrics, &endpoint, "kv_event_sources", "/kv_event_sources").await;
        body.and_then(|body| sockets::read(&body, address.ip()))
    } else {
        None
    };
    Round {
        address,
        sources,
        adapters: models.and_then(|body| answers::adapters(&body)),
        version: version.and_then(|body| answers::version(&body)),
    }
}

/// The body of a good answer.
async fn question(
    client: &EngineClient,
    metrics: &EngineMetrics,
    endpoint: &Endpoint,
    question: &'static str,
    path: &'static str,
) -> Option<Bytes> {
    let (body, result) = match client.get(&endpoint.name, path, ANSWER_MAX).await {
        Ok(answer) if answer.status.is_success() => (Some(answer.body), "answered"),
        Ok(_) | Err(AskError::Unreadable(_)) => (None, "unreadable"),
        Err(AskError::Connect(_) | AskError::Unsendable(_)) => (None, "refused"),
        Err(AskError::Silent(_) | AskError::Broken(_)) => (None, "silent"),
    };
    metrics.questions.get_or_create(&QuestionLabels { question, result }).inc();
    body
}
