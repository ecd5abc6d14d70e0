//! The admin listener: `/metrics`, `/livez`, `/readyz`, `/state`, `/blocks`, `/receipts` and `POST /explain` read and change
//! nothing; `POST /reload` asks the [`Reloader`](crate::models::Reloader) to read the models again, `POST /drain` and
//! `/undrain` say what an endpoint may get.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

mod blocks;
mod collector;
mod draining;
mod explaining;
pub mod listener;
mod query;
pub mod state;

pub use collector::EndpointCollector;
pub use state::StateSource;

use crate::decide::Decider;
use crate::lifecycle::Readiness;
use crate::models::ReloadOrder;
use crate::receipts::Receipts;
use crate::sources::SourceWatch;

/// Media type of the exposition.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the admin listener shows.
#[derive(Clone)]
pub struct Admin {
    pub registry: Arc<Registry>,
    pub readiness: Readiness,
    pub state: Arc<StateSource>,
    pub reloads: mpsc::Sender<ReloadOrder>,
    pub decider: Arc<Decider>,
    pub receipts: Arc<Receipts>,
    pub sources: Arc<SourceWatch>,
    /// Largest body to explain, in bytes.
    pub max_body_bytes: usize,
}

impl Admin {
    pub fn router(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .route("/state", get(show_state))
            .route("/blocks", get(blocks::show))
            .route("/receipts", get(explaining::receipts))
            .route("/explain", post(explaining::explain).layer(DefaultBodyLimit::max(self.max_body_bytes)))
            .route("/drain", post(draining::drain))
            .route("/undrain", post(draining::undrain))
            .route("/reload", post(reload))
            .route("/", get(async || PAGES))
            .fallback(no_page)
            .method_not_allowed_fallback(other_method)
            .with_state(self)
    }
}

/// What a person is told who opens the listener in a browser, or mistypes a page.
const PAGES: &str = "\
GET  /metrics /livez /readyz /state
GET  /receipts?decision=&endpoint=&policy=&limit=
GET  /blocks?endpoint=HOST:PORT&rank=N
POST /explain?path=/v1/chat/completions&policy=   (with a client's body)
POST /drain?endpoint=HOST:PORT
POST /undrain?endpoint=HOST:PORT
POST /reload
";

async fn no_page(uri: Uri) -> (StatusCode, String) {
    (StatusCode::NOT_FOUND, format!("{} is no page here; there are\n{PAGES}", uri.path()))
}

async fn other_method(method: Method, uri: Uri) -> (StatusCode, String) {
    (StatusCode::METHOD_NOT_ALLOWED, format!("{} does not take {method}; there are\n{PAGES}", uri.path()))
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let mut text = String::new();
    match encode(&mut text, &admin.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Alive is who answers, and still reads events: a restart is the only cure for an event thread that has ended.
async fn livez(State(admin): State<Admin>) -> Response {
    if admin.state.ingest.is_alive() {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the event thread has ended; restart this program\n")
            .into_response()
    }
}

/// An indexer that lacks events of some engines is ready all the same: it ranks those by load. What it lacks is said.
async fn readyz(State(admin): State<Admin>) -> Response {
    let pending = admin.readiness.pending();
    let status = if pending.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let ready = pending.is_empty();
    (status, Json(json!({ "ready": ready, "pending": pending, "degraded": admin.sources.missing() })))
        .into_response()
}

async fn show_state(State(admin): State<Admin>) -> Response {
    Json(admin.state.read()).into_response()
}

/// Answers when the reload has ended: 200 with what it changed, 422 with why it was refused. 503: one is running and
/// others wait, or the program has not started up or is ending.
async fn reload(State(admin): State<Admin>) -> Response {
    let (reply, ended) = oneshot::channel();
    if admin.reloads.try_send(ReloadOrder { reply }).is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, "not now; ask again\n").into_response();
    }
    match ended.await {
        Ok(Ok(reloaded)) => Json(reloaded).into_response(),
        Ok(Err(error)) => (StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\n")).into_response(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the program is ending\n").into_response(),
    }
}
