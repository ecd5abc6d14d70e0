//! `/state`: what the indexer knows, as JSON for people.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use tokio::sync::watch;
use warmpath_kv::{Index, StreamId};

use crate::books::Books;
use crate::clock::Clock;
use crate::drift::{DriftState, DriftWatch};
use crate::engines::Directory;
use crate::fleet::{Endpoint, ModelIndex, Rank, View};
use crate::ingest::{Ingest, StreamStatus};
use crate::lifecycle::Readiness;
use crate::models::{LastReload, Model, Models, Registry, Target, ToldBy};
use crate::volatile::{VolatileHead, VolatileHeads};

/// Where the state is read from.
pub struct StateSource {
    pub view: Arc<View>,
    pub books: Arc<Mutex<Books>>,
    pub index: Arc<RwLock<Index>>,
    pub ingest: Arc<Ingest>,
    pub readiness: Readiness,
    pub clock: Clock,
    pub registry: Arc<Registry>,
    pub drift: Arc<DriftWatch>,
    pub volatile: Arc<VolatileHeads>,
    pub engines: watch::Receiver<Arc<Directory>>,
}

/// The whole state at one moment (each part at its own, close together).
#[derive(Debug, Serialize)]
pub struct State {
    /// Upper half of this indexer's decision ids, in hexadecimal.
    indexer_id: String,
    uptime_ms: u64,
    pending: Vec<String>,
    models: Vec<ModelState>,
    /// How the last reload ended; null before the first.
    last_reload: Option<LastReload>,
    endpoints_version: String,
    endpoints: Vec<EndpointState>,
    reservations: usize,
    index: IndexState,
    /// Where prompts differ near their beginning although what follows is equal.
    volatile_heads: Vec<VolatileHead>,
}

#[derive(Debug, Serialize)]
struct ModelState {
    name: String,
    aliases: Vec<String>,
    /// As configured; what engines list is at their endpoints.
    adapters: Vec<String>,
    /// The release whose behaviour prompts are rendered with, and who told it.
    engine_version: String,
    engine_version_from: ToldBy,
    /// Which encoder makes the tokens; null without a tokenizer.
    encoder: Option<&'static str>,
    /// Whether its tokens are those of its engines; null before anything could be compared.
    drift: Option<DriftState>,
}

#[derive(Debug, Serialize)]
struct EndpointState {
    endpoint: String,
    model: String,
    health: &'static str,
    /// `trusted`, or `ejected` for failing too often, or `probed` after that.
    standing: &'static str,
    /// An operator said that it gets nothing new.
    draining: bool,
    zone: Option<String>,
    capacity: f64,
    /// The engine's release, where it has said.
    engine_version: Option<String>,
    /// Its adapters; null where it has not said, or not lately.
    adapters: Option<Vec<String>>,
    ranks: Vec<RankState>,
}

#[derive(Debug, Serialize)]
struct RankState {
    rank: usize,
    stream_id: u32,
    /// Reserved here and by peers.
    queued_tokens: u64,
    active_sequences: u64,
    waiting_sequences: u64,
    /// c: how many times slower it is than a reference endpoint.
    slowness: f64,
    /// R: tokens that it was given lately, fading.
    recent_tokens: f64,
    /// What its engine last said.
    engine: Option<EngineState>,
    /// Its events; none are configured where this is null.
    stream: Option<StreamState>,
}

#[derive(Debug, Serialize)]
struct EngineState {
    age_ms: u64,
    running: u64,
    waiting: u64,
    kv_usage: f64,
    pressure: f64,
    foreign_sequences: u64,
    room_tokens: Option<u64>,
}

#[derive(Debug, Serialize)]
struct StreamState {
    trust: &'static str,
    reason: &'static str,
    connected: bool,
    last_seq: Option<u64>,
    batches: u64,
    events: u64,
    blocks: usize,
    block_size: Option<u32>,
    /// What its engine's metrics say of that, while no event has told it.
    block_size_guess: Option<u32>,
    last_batch_age_ms: Option<u64>,
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct IndexState {
    blocks: usize,
    references: usize,
    streams: usize,
    speculative_blocks: usize,
    /// Of the secret of the block keys: the same at all indexers that understand each other's, and tells nothing of it.
    secret_check: String,
}

// === impl StateSource ===

impl StateSource {
    pub fn read(&self) -> State {
        let fleet = self.view.current();
        let streams: HashMap<StreamId, StreamStatus> =
            self.ingest.status().into_iter().map(|status| (status.id, status)).collect();
        let (index, reader) = {
            let index = self.index.read();
            (index.stats(), index.reader())
        };
        let (indexer_id, reservations) = {
            let books = self.books.lock();
            (books.own().get(), books.ledger().len())
        };
        let (models, directory) = (self.registry.current(), self.engines.borrow().clone());
        let endpoint = |endpoint| self.endpoint(endpoint, &streams, directory.as_ref());
        State {
            models: models
                .in_use()
                .map(|(index, model)| model_state(&models, index, model, self.drift.state(index)))
                .collect(),
            last_reload: self.registry.last_reload(),
            indexer_id: format!("{indexer_id:08x}"),
            uptime_ms: self.clock.now().0,
            pending: self.readiness.pending(),
            endpoints_version: format!("{:016x}", fleet.version),
            endpoints: fleet.endpoints.iter().map(endpoint).collect(),
            reservations,
            index: IndexState {
                blocks: index.blocks,
                references: index.references,
                streams: index.streams,
                speculative_blocks: index.speculative_blocks,
                secret_check: format!("{:016x}", reader.secret_check()),
            },
            volatile_heads: self.volatile.named(),
        }
    }

    fn endpoint(
        &self,
        endpoint: &Endpoint,
        streams: &HashMap<StreamId, StreamStatus>,
        directory: &Directory,
    ) -> EndpointState {
        let ranks = endpoint.ranks.iter().enumerate();
        let engine = directory.engine(endpoint.spec.address);
        EndpointState {
            endpoint: endpoint.name.to_string(),
            model: self.registry.name(endpoint.spec.model).to_string(),
            health: endpoint.health.name(),
            standing: endpoint.meter.standing().name(),
            draining: endpoint.meter.is_draining(),
            zone: endpoint.spec.zone.clone(),
            capacity: endpoint.spec.capacity.weight(),
            engine_version: engine.and_then(|engine| Some(engine.version?.to_string())),
            adapters: engine
                .and_then(|engine| engine.adapters.as_ref())
                .map(|adapters| adapters.iter().map(|adapter| adapter.name.to_string()).collect()),
            ranks: ranks.map(|(number, rank)| self.rank(number, rank, streams.get(&rank.place))).collect(),
        }
    }

    fn rank(&self, number: usize, rank: &Rank, stream: Option<&StreamStatus>) -> RankState {
        let load = self.books.lock().ledger().load(rank.place);
        let now = self.clock.now();
        let shown = self.index.read().reader().stream(rank.place);
        RankState {
            rank: number,
            stream_id: rank.place.0,
            queued_tokens: load.queued_tokens,
            active_sequences: load.sequences,
            waiting_sequences: load.waiting,
            slowness: rank.meter.slowness(),
            recent_tokens: rank.meter.recent_tokens(now),
            engine: rank.gauge.last().map(|sample| EngineState {
                age_ms: now.since(sample.at),
                running: sample.running,
                waiting: sample.waiting,
                kv_usage: sample.kv_usage,
                pressure: sample.pressure,
                foreign_sequences: sample.foreign_sequences,
                room_tokens: sample.room_tokens,
            }),
            stream: stream.map(|stream| StreamState {
                trust: stream.trust.name(),
                reason: stream.trust.reason(),
                connected: stream.is_connected,
                last_seq: stream.last_seq,
                batches: stream.read.batches,
                events: stream.read.events,
                blocks: stream.blocks,
                block_size: stream.block_size,
                block_size_guess: shown.filter(|shown| !shown.has_told).and_then(|shown| shown.block_size),
                last_batch_age_ms: stream.last_batch_at.map(|at| now.since(at)),
                error: stream.error.clone(),
            }),
        }
    }
}

fn model_state(models: &Models, index: ModelIndex, model: &Model, drift: Option<DriftState>) -> ModelState {
    let names = models.names_of(index);
    let (adapters, aliases): (Vec<_>, Vec<_>) =
        names.into_iter().filter(|(name, _)| **name != *model.name).partition(|(_, to)| to.adapter.is_some());
    let texts = |names: Vec<(&str, &Target)>| names.into_iter().map(|(name, _)| name.to_owned()).collect();
    ModelState {
        name: model.name.to_string(),
        aliases: texts(aliases),
        adapters: texts(adapters),
        engine_version: model.release.version.to_string(),
        engine_version_from: model.release.told_by,
        drift,
        encoder: model.renderer.as_ref().map(|renderer| renderer.encoder().kind.name()),
    }
}
