//! Asks every engine what it is, on a slow beat. One that does not answer keeps no other from being asked or heard.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use warmpath_prompt::EngineVersion;

use super::metrics::{EngineMetrics, QuestionLabels};
use super::{Census, Directory, ListedAdapter, answers, sockets};
use crate::clock::Clock;
use crate::config::Scrape;
use crate::fleet::{Endpoint, Observation, RankSource, Rota, View};
use crate::http::{AskError, EngineClient};

/// Engines asked at the same time, each over one connection: those of a fleet of hundreds.
const ASKED_MAX: usize = 256;
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
struct Answered {
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
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        let (mut asked, mut rota) = (FuturesUnordered::new(), Rota::new(ASKED_MAX));
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(answered) = asked.next() => {
                    let Answered { address, .. } = &answered;
                    rota.end(*address);
                    self.note(answered, &observations).await;
                    // All who answer at once are told at once; who does not keeps what others say until the next look.
                    if asked.is_empty() {
                        self.publish();
                    }
                }
                _ = looks.tick() => {
                    let (fleet, now) = (self.view.current(), self.clock.now());
                    let is_due = |endpoint: &Endpoint| self.census.is_due(endpoint.spec.address, now);
                    for endpoint in rota.begin(&fleet.endpoints, is_due) {
                        asked.push(ask(&client, &metrics, endpoint));
                    }
                    // What was heard grows old, and endpoints go.
                    self.publish();
                }
            }
        }
    }

    /// Takes in what one engine answered.
    async fn note(&mut self, answered: Answered, observations: &mpsc::Sender<Observation>) {
        let Answered { address, adapters, version, sources } = answered;
        self.census.note(address, adapters, version, self.clock.now());
        if let Some(sources) = sources
            && observations.send(Observation::Told { address, sources }).await.is_err()
        {
            tracing::debug!("the fleet is stopping; what an engine said is dropped");
        }
    }

    /// Makes the directory anew, where that changes it.
    fn publish(&mut self) {
        let directory = self.census.directory(&self.view.current(), self.clock.now());
        self.directory.send_if_modified(|current| {
            let is_new = **current != directory;
            if is_new {
                *current = Arc::new(directory);
            }
            is_new
        });
    }
}

async fn ask(client: &EngineClient, metrics: &EngineMetrics, endpoint: Endpoint) -> Answered {
    let version = question(client, metrics, &endpoint, "version", "/version").await;
    let models = question(client, metrics, &endpoint, "models", "/v1/models").await;
    let address = endpoint.spec.address;
    let sources = if endpoint.spec.asks_engine() {
        let body = question(client, metrics, &endpoint, "kv_event_sources", "/kv_event_sources").await;
        body.and_then(|body| sockets::read(&body, address.ip()))
    } else {
        None
    };
    Answered {
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
