//! The life of an emulated server: start, restart on the same ports, stop.
//!
//! ```text
//!            start                    restart              down time over
//!   (none) ────────▶ Up{incarnation} ─────────▶ Down ─────────────────────▶ Up{next incarnation}
//!                          │ stop                │ stop
//!                          ▼                     ▼
//!                       Stopped ◀────────────────┘
//! ```
//!
//! An [`Incarnation`] owns everything that a process would: ranks with their caches, event sockets, HTTP listener and
//! connections. What a test needs beyond it (faults, the request log, bound addresses) lives in [`Shared`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::{ConfigError, EmulatorConfig, rank_address};
use crate::connection;
use crate::core::Engine;
use crate::faults::{FaultError, FaultOrder, SharedFaults};
use crate::http;
use crate::publisher::{BindError, Publisher, PublisherConfig};
use crate::rank::{RankHandle, RankParts};
use crate::requests::{RequestLog, RequestRecord};
use crate::state::{self, StateDump};
use crate::text::{Text, TextError};
use crate::wire::Encoder;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Addresses {
    /// HTTP.
    pub http: SocketAddr,
    /// Event sockets by rank, or the only one of all; empty without events.
    pub events: Vec<String>,
    /// Replay sockets likewise; empty without replay.
    pub replay: Vec<String>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Bad configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Tokenizer or template could not be loaded.
    #[error(transparent)]
    Text(#[from] TextError),
    /// An event socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The HTTP socket.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The runtime is shutting down.
    #[error("the server is stopped")]
    Stopped,
}

/// A running emulated server. Dropping it stops it in the background; [`Emulator::stop`] waits.
#[derive(Debug)]
pub struct Emulator {
    shared: Arc<Shared>,
    addresses: Addresses,
    control: mpsc::Sender<Control>,
}

/// What outlives a restart.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: EmulatorConfig,
    pub(crate) text: Option<Text>,
    pub(crate) faults: Arc<SharedFaults>,
    pub(crate) requests: RequestLog,
    /// The ranks of the incarnation that is up; empty while down.
    ranks: Mutex<Vec<RankHandle>>,
    boots: AtomicU64,
}

pub(crate) enum Control {
    Restart { down: Duration, done: Option<oneshot::Sender<Result<(), StartError>>> },
    Stop { done: oneshot::Sender<()> },
}

// === impl Emulator ===

impl Emulator {
    /// Binds all sockets and serves.
    pub async fn start(config: EmulatorConfig) -> Result<Self, StartError> {
        config.check()?;
        let text = config
            .tokenizer
            .as_deref()
            .map(|dir| Text::load(dir, config.output, config.vllm_version))
            .transpose()?;
        let shared = Arc::new(Shared {
            faults: Arc::new(SharedFaults::new(config.ranks)),
            requests: RequestLog::new(config.requests_kept),
            ranks: Mutex::new(Vec::new()),
            boots: AtomicU64::new(0),
            text,
            config,
        });
        // A restart is ordered through this; few are ever waiting.
        let (control, orders) = mpsc::channel(8);
        let sockets = if shared.config.one_socket { 1 } else { shared.config.ranks };
        let wanted = Addresses {
            http: shared.config.http,
            events: wanted(shared.config.events.as_deref(), sockets),
            replay: wanted(shared.config.replay.as_deref(), sockets),
        };
        let incarnation = Incarnation::start(&shared, &wanted, control.downgrade()).await?;
        let addresses = incarnation.addresses.clone();
        tokio::spawn(supervise(Arc::clone(&shared), incarnation, orders, control.downgrade()));
        Ok(Self { shared, addresses, control })
    }

    /// Where it listens; the same after a restart.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Orders faults. A restart in the order happens in the background; see [`Emulator::restart`] to wait for it.
    pub async fn inject(&self, order: &FaultOrder) -> Result<(), FaultError> {
        self.shared.faults.apply(order)?;
        if let Some(restart) = order.restart {
            let down = Duration::from_millis(restart.down_ms);
            if self.control.send(Control::Restart { down, done: None }).await.is_err() {
                tracing::warn!("restart ordered of a stopped server");
            }
        }
        Ok(())
    }

    /// Closes all sockets, loses the caches, waits for `down`, and serves again on the same ports.
    pub async fn restart(&self, down: Duration) -> Result<(), StartError> {
        let (done, answer) = oneshot::channel();
        let order = Control::Restart { down, done: Some(done) };
        self.control.send(order).await.map_err(|_| StartError::Stopped)?;
        answer.await.map_err(|_| StartError::Stopped)?
    }

    /// The truth about every rank; no ranks while the server is down.
    pub async fn state(&self) -> StateDump {
        state::dump(&self.shared).await
    }

    /// The requests received, oldest first.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.shared.requests.all()
    }

    /// Forgets the requests received.
    pub fn clear_requests(&self) {
        self.shared.requests.clear();
    }

    /// Closes everything and waits until it is closed.
    pub async fn stop(self) {
        let (done, answer) = oneshot::channel();
        if self.control.send(Control::Stop { done }).await.is_ok() && answer.await.is_err() {
            tracing::warn!("the server ended by itself");
        }
    }
}

impl Shared {
    pub(crate) fn ranks(&self) -> Vec<RankHandle> {
        self.ranks.lock().clone()
    }
}

fn wanted(address: Option<&str>, ranks: u32) -> Vec<String> {
    address.map(|base| (0..ranks).filter_map(|rank| rank_address(base, rank)).collect()).unwrap_or_default()
}

/// Owns the incarnation until stopped, or until nobody holds the server any more.
async fn supervise(
    shared: Arc<Shared>,
    first: Incarnation,
    mut orders: mpsc::Receiver<Control>,
    control: mpsc::WeakSender<Control>,
) {
    let addresses = first.addresses.clone();
    let mut incarnation = Some(first);
    while let Some(order) = orders.recv().await {
        shared.ranks.lock().clear();
        if let Some(old) = incarnation.take() {
            old.stop().await;
        }
        match order {
            Control::Stop { done } => {
                if done.send(()).is_err() {
                    tracing::debug!("nobody waits for the stop");
                }
                return;
            }
            Control::Restart { down, done } => {
                tokio::time::sleep(down).await;
                let started = Incarnation::start(&shared, &addresses, control.clone()).await;
                let outcome = started.map(|next| incarnation = Some(next));
                if let Err(error) = &outcome {
                    tracing::error!(%error, "restart failed; the server stays down");
                }
                if let Some(Err(unheard)) = done.map(|done| done.send(outcome)) {
                    tracing::debug!(ok = unheard.is_ok(), "nobody waits for the restart");
                }
            }
        }
    }
    shared.ranks.lock().clear();
    if let Some(last) = incarnation {
        last.stop().await;
    }
}

/// One life of the server.
#[derive(Debug)]
struct Incarnation {
    addresses: Addresses,
    cancel: CancellationToken,
    ranks: JoinSet<Option<Publisher>>,
    http: JoinSet<()>,
}

// === impl Incarnation ===

impl Incarnation {
    async fn start(
        shared: &Arc<Shared>,
        wanted: &Addresses,
        control: mpsc::WeakSender<Control>,
    ) -> Result<Self, StartError> {
        let config = &shared.config;
        let boot = shared.boots.fetch_add(1, Ordering::Relaxed) ^ unix_nanos();
        let listener = TcpListener::bind(wanted.http).await;
        let listener = listener.map_err(|source| StartError::Listen { address: wanted.http, source })?;
        let http =
            listener.local_addr().map_err(|source| StartError::Listen { address: wanted.http, source })?;
        let mut addresses = Addresses { http, events: Vec::new(), replay: Vec::new() };
        let mut publishers: Vec<Option<Publisher>> = Vec::new();
        for rank in 0..config.ranks {
            let first = publishers.first().filter(|_| config.one_socket);
            if let Some(of_rank) = first.map(|first| first.as_ref().map(|first| first.of_rank(rank))) {
                publishers.push(of_rank);
                continue;
            }
            let publisher = bind(shared, wanted, rank).await?;
            if let Some(publisher) = &publisher {
                addresses.events.push(publisher.events_address().to_owned());
                addresses.replay.extend(publisher.replay_address().map(str::to_owned));
            }
            publishers.push(publisher);
        }
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let mut handles = Vec::new();
        for publisher in publishers {
            let parts = RankParts {
                engine: Engine::new(config.engine(boot)),
                publisher,
                clock: Clock::start(config.speedup),
                faults: Arc::clone(&shared.faults),
            };
            let (handle, task) = RankHandle::start(parts, cancel.clone());
            handles.push(handle);
            tasks.spawn(task);
        }
        shared.ranks.lock().clone_from(&handles);
        let router =
            http::router(http::App::new(Arc::clone(shared), boot, handles, addresses.clone(), control));
        let mut http = JoinSet::new();
        http.spawn(connection::serve(listener, router, cancel.clone()));
        Ok(Self { addresses, cancel, ranks: tasks, http })
    }

    /// Cuts all connections, ends the ranks, closes the event sockets.
    async fn stop(mut self) {
        self.cancel.cancel();
        self.http.shutdown().await;
        while let Some(ended) = self.ranks.join_next().await {
            let Ok(Some(publisher)) = ended else { continue };
            if tokio::task::spawn_blocking(move || publisher.stop()).await.is_err() {
                tracing::error!("stopping a publisher panicked");
            }
        }
    }
}

/// Opens the event sockets of a rank, if it has any.
async fn bind(shared: &Arc<Shared>, wanted: &Addresses, rank: u32) -> Result<Option<Publisher>, StartError> {
    let index = rank as usize;
    let Some(events) = wanted.events.get(index).cloned() else { return Ok(None) };
    let (config, version) = (&shared.config, shared.config.vllm_version);
    let doubled = i32::try_from(config.buffer_steps.saturating_mul(2)).unwrap_or(i32::MAX);
    let publisher = PublisherConfig {
        ranks: if config.one_socket { 0..config.ranks } else { rank..rank + 1 },
        events,
        replay: wanted.replay.get(index).cloned(),
        topic: config.topic.clone(),
        buffer_steps: config.buffer_steps,
        encoder: Encoder::new(version, config.hash_form()),
        replays_topic: version.replays_topic(),
        router_hwm: version.since(33).then_some(doubled),
        speedup: config.speedup,
    };
    let faults = Arc::clone(&shared.faults);
    let bound = tokio::task::spawn_blocking(move || Publisher::start(publisher, faults)).await;
    Ok(Some(bound.map_err(|_| StartError::Stopped)??))
}

fn unix_nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos() % u128::from(u64::MAX)).unwrap_or_default()
}
