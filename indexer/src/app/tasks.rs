//! Starts the tasks of each part.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use warmpath_kv::Index;
use warmpath_proto::v1::images_server::ImagesServer;
use warmpath_proto::v1::peer_server::PeerServer;
use warmpath_proto::v1::scorer_server::ScorerServer;

use super::STATIC_SOURCE;
use super::metrics::Metrics;
use super::parts::Core;
use crate::admin::{Admin, listener as admin_listener};
use crate::books::Books;
use crate::config::Config;
use crate::fleet::dns::DnsSource;
use crate::fleet::metrics::FleetMetrics;
use crate::fleet::scrape::{GuessOf, OwnCounts, OwnCountsOf, Scraper, Sleeps};
use crate::fleet::{EndpointSpec, Fleet, Observation, model_index};
use crate::fleet_driver::{FleetDriver, OBSERVATIONS_MAX};
use crate::housekeeping;
use crate::ingest::Ingest;
use crate::lifecycle::Tasks;
use crate::logs::News;
use crate::mirror::ImageService;
use crate::models::{ReloadOrder, Reloader};
use crate::peers::{Ear, PeerNames, PeerService, Publisher, REFRESH};
use crate::resolve::Resolver;
use crate::rpc::{CONNECTION_WINDOW, KEEPALIVE, STREAM_WINDOW, STREAMS_MAX, ScorerService};

/// Everything about endpoints. Configured ones are there when this returns, so before the first request. Gives the way in for
/// whoever else observes them.
pub(super) fn start_fleet(
    tasks: &mut Tasks,
    config: &Config,
    core: &Core,
    metrics: &Metrics,
) -> mpsc::Sender<Observation> {
    let mut driver = FleetDriver {
        fleet: Fleet::new(config.scrape.failures_to_avoid),
        view: core.view.clone(),
        books: core.books.clone(),
        ingest: core.ingest.clone(),
        registry: core.registry.clone(),
        clock: core.clock,
        metrics: metrics.fleet.clone(),
        decide_metrics: metrics.decide.clone(),
        drift_metrics: core.drift.metrics().clone(),
        told: News::default(),
    };
    driver.observe(static_endpoints(config));
    let (observer, observations) = mpsc::channel(OBSERVATIONS_MAX);
    let stop = tasks.stop();
    tasks.spawn("fleet", driver.run(observations, stop.clone()));
    spawn_dns(tasks, config, &metrics.fleet, &observer);
    let own = (own_counts(core.books.clone(), core.index.clone()), guess_of(core.index.clone()));
    let sleeps = sleeps(core.ingest.clone());
    let scraper =
        Scraper::new(config.scrape, core.clock, core.view.clone(), own, sleeps, metrics.fleet.clone());
    tasks.spawn("scrape", scraper.run(observer.clone(), stop.clone()));
    let sources = core.sources.clone();
    tasks.spawn("sources", sources.run(core.view.clone(), core.ingest.clone(), core.clock, stop.clone()));
    let (books, index, view) = (core.books.clone(), core.index.clone(), core.view.clone());
    let decide = metrics.decide.clone();
    tasks.spawn("housekeeping", housekeeping::run(books, index, view, core.clock, decide, stop));
    observer
}

/// Follows every peer, and gives the service through which they follow this one.
pub(super) fn start_peers(
    tasks: &mut Tasks,
    config: &Config,
    core: &Core,
    metrics: &Metrics,
) -> PeerServer<PeerService> {
    let publisher = Publisher::new(core.books.clone(), core.reader(), metrics.peers.clone());
    let service = PeerServer::new(publisher.service(core.view.clone(), core.clock));
    let stop = tasks.stop();
    tasks.spawn("publish", publisher.run(stop.clone()));
    let ear = Ear {
        books: core.books.clone(),
        view: core.view.clone(),
        clock: core.clock,
        reporter: core.reporter(config, metrics),
        cached: core.reader(),
        followed: core.followed.clone(),
        metrics: metrics.peers.clone(),
    };
    let names = config.peers.clone();
    let peers = PeerNames { names, resolver: Resolver::system(), refresh: REFRESH, ear };
    tasks.spawn("follow", peers.run(stop));
    service
}

fn static_endpoints(config: &Config) -> Observation {
    let endpoints = config.endpoints.fixed.iter();
    let endpoints =
        endpoints.filter_map(|endpoint| EndpointSpec::of_static(endpoint, &config.models)).collect();
    Observation::Listed { source: STATIC_SOURCE, endpoints }
}

fn own_counts(books: Arc<Mutex<Books>>, index: Arc<RwLock<Index>>) -> OwnCountsOf {
    Box::new(move |place| {
        let load = books.lock().ledger().load(place);
        let stream = index.read().stream_stats(place);
        OwnCounts {
            sequences: load.sequences,
            waiting: load.waiting,
            held_blocks: stream.map_or(0, |stream| stream.blocks),
            evicted_blocks: stream.map_or(0, |stream| stream.evicted),
            block_tokens: stream.and_then(|stream| stream.block_size),
            is_followed: stream.is_some_and(|stream| stream.trust.is_scored()),
        }
    })
}

fn guess_of(index: Arc<RwLock<Index>>) -> GuessOf {
    Box::new(move |place, tokens| index.write().guess_block_size(place, tokens))
}

fn sleeps(ingest: Arc<Ingest>) -> Sleeps {
    Box::new(move |place| {
        // Where the event thread has ended, that was told, and nothing is believed any more: not at each scrape again.
        if let Err(error) = ingest.asleep(place) {
            tracing::debug!(stream = %place, %error, "what is held of an engine that sleeps stays");
        }
    })
}

fn spawn_dns(
    tasks: &mut Tasks,
    config: &Config,
    metrics: &FleetMetrics,
    observer: &mpsc::Sender<Observation>,
) {
    for (source, endpoints) in (STATIC_SOURCE + 1..).zip(&config.endpoints.dns) {
        let Some(model) = model_index(&endpoints.model, &config.models) else { continue };
        let dns = DnsSource {
            source,
            endpoints: endpoints.clone(),
            model,
            resolver: Resolver::system(),
            metrics: metrics.clone(),
        };
        let stop = tasks.stop();
        tasks.spawn("dns", dns.run(observer.clone(), stop));
    }
}

pub(super) fn spawn_admin(tasks: &mut Tasks, listener: TcpListener, admin: Admin) {
    let stop = tasks.stop();
    tasks.spawn("admin", admin_listener::serve(listener, admin.router(), stop));
}

pub(super) fn spawn_reloader(
    tasks: &mut Tasks,
    reloader: Reloader,
    orders: mpsc::Receiver<ReloadOrder>,
    hangups: Signal,
) {
    let stop = tasks.stop();
    tasks.spawn("reload", reloader.run(orders, hangups, stop));
}

pub(super) fn spawn_grpc(
    tasks: &mut Tasks,
    listener: TcpListener,
    scorer: ScorerServer<ScorerService>,
    peer: PeerServer<PeerService>,
    images: ImagesServer<ImageService>,
) {
    let stop = tasks.stop();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_service(scorer)
        .add_service(peer)
        .add_service(images);
    tasks.spawn("grpc", async move {
        if let Err(error) = server.serve_with_incoming_shutdown(incoming, stop.cancelled_owned()).await {
            tracing::error!(%error, "the gRPC listener failed");
        }
    });
}
