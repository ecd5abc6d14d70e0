//! The HTTP edge: routes, the faults in front of them, and the log of what came in.

mod answer;
mod body;
mod chat;
mod control;
mod convert;
mod embeddings;
mod error;
mod generate;
mod info;
mod messages;
mod metrics;
mod render;
mod responses;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use tokio::sync::mpsc;

use crate::connection::Cut;
use crate::core::Lora;
use crate::faults::HttpFate;
use crate::rank::RankHandle;
use crate::server::{Addresses, Control, Shared};
use answer::Api;
use error::ApiError;
use responses::ResponseStore;

/// Largest body taken, in bytes; larger ones get a 413.
const BODY_MAX: usize = 256 << 20;

/// What handlers know: one incarnation of the server.
#[derive(Clone)]
pub(crate) struct App(Arc<AppState>);

struct AppState {
    shared: Arc<Shared>,
    ranks: Vec<RankHandle>,
    addresses: Addresses,
    is_asleep: AtomicBool,
    control: mpsc::WeakSender<Control>,
    started_unix: f64,
    next_rank: AtomicUsize,
    next_request: AtomicUsize,
    /// Tells the answers of different starts and servers apart.
    boot: u64,
    responses: ResponseStore,
}

// === impl App ===

impl App {
    pub(crate) fn new(
        shared: Arc<Shared>,
        boot: u64,
        ranks: Vec<RankHandle>,
        addresses: Addresses,
        control: mpsc::WeakSender<Control>,
    ) -> Self {
        Self(Arc::new(AppState {
            shared,
            ranks,
            addresses,
            is_asleep: AtomicBool::new(false),
            control,
            started_unix: unix_seconds(),
            next_rank: AtomicUsize::new(0),
            next_request: AtomicUsize::new(0),
            boot,
            responses: ResponseStore::default(),
        }))
    }

    fn shared(&self) -> &Shared {
        &self.0.shared
    }

    fn ranks(&self) -> &[RankHandle] {
        &self.0.ranks
    }

    /// The id of the next answer.
    fn answer_id(&self, api: Api) -> String {
        let number = self.0.next_request.fetch_add(1, Ordering::Relaxed);
        format!("{}{:016x}{number:08x}", api.id_prefix(), self.0.boot)
    }

    /// The responses that can be gone on from.
    fn responses(&self) -> &ResponseStore {
        &self.0.responses
    }

    /// The adapter that a model name stands for: `None` for the base model.
    fn model(&self, name: Option<&str>) -> Result<Option<Lora>, ApiError> {
        let config = &self.shared().config;
        let Some(name) = name.filter(|name| !name.is_empty() && *name != config.model) else {
            return Ok(None);
        };
        let adapter = (1..).zip(&config.loras).find(|(_, lora)| *lora == name);
        let (id, name) = adapter.ok_or_else(|| ApiError::unknown_model(name))?;
        Ok(Some(Lora { id, name: name.clone() }))
    }

    /// The rank asked for, or the one with the least load, taking turns among equals.
    fn rank(&self, wanted: Option<usize>) -> Result<&RankHandle, ApiError> {
        let ranks = self.ranks();
        if let Some(wanted) = wanted {
            return ranks.get(wanted).ok_or_else(|| ApiError::rank_out_of_range(wanted, ranks.len()));
        }
        let first = self.0.next_rank.fetch_add(1, Ordering::Relaxed) % ranks.len().max(1);
        let turn = ranks.iter().skip(first).chain(ranks.iter().take(first));
        // A waiting request weighs four times as much as a running one, as in the real balancer.
        let load = |rank: &&RankHandle| {
            let summary = rank.stats().summary;
            4 * summary.waiting + summary.running
        };
        turn.min_by_key(load).ok_or_else(|| ApiError::bad_request("no rank is up"))
    }
}

/// All routes of one incarnation.
pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/health", get(StatusCode::OK))
        .route("/version", get(info::version))
        .route("/v1/models", get(info::models))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/completions", post(generate::completions))
        .route("/v1/chat/completions", post(generate::chat))
        .route("/v1/completions/render", post(render::completions))
        .route("/v1/chat/completions/render", post(render::chat))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/{id}", get(responses::retrieve))
        .route("/v1/messages", post(messages::create))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/embeddings", post(embeddings::create))
        .route("/tokenize", post(info::tokenize))
        .route("/reset_prefix_cache", post(info::reset_prefix_cache))
        .route("/kv_event_sources", get(info::kv_event_sources))
        .route("/sleep", post(info::sleep))
        .route("/wake_up", post(info::wake_up))
        .route("/is_sleeping", get(info::is_sleeping))
        .route("/emulator/requests", get(control::requests).delete(control::clear_requests))
        .route("/emulator/faults", get(control::faults).post(control::inject))
        .route("/emulator/state", get(control::state))
        .layer(middleware::from_fn_with_state(app.clone(), receive))
        .layer(axum::extract::DefaultBodyLimit::max(BODY_MAX))
        .with_state(app)
}

/// Logs a request and lets a fault have it first. The paths under `/emulator` are exempt; only POST requests are logged
/// and get counted faults, so that probes and scrapes do not use them up.
async fn receive(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.uri().path().starts_with("/emulator/") {
        return next.run(request).await;
    }
    if request.method() != Method::POST {
        if app.shared().faults.get().hangs() {
            return std::future::pending().await;
        }
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_MAX).await else {
        return ApiError::body_too_large().into_response();
    };
    app.shared().requests.record(parts.method.as_str(), &parts.uri.to_string(), &parts.headers, &body);
    match app.shared().faults.http_fate() {
        HttpFate::Serve => next.run(Request::from_parts(parts, Body::from(body))).await,
        HttpFate::Hang => std::future::pending().await,
        HttpFate::Fail(status) => ApiError::injected(status).into_response(),
        HttpFate::Reset => {
            if let Some(cut) = parts.extensions.get::<Cut>() {
                cut.cut();
            }
            // Never reaches the client: the connection is cut.
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
