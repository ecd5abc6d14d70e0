//! The admin listener: `/metrics`, `/livez`, `/readyz`, `/state`. Reads everything, changes nothing.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;

mod collector;
pub mod state;

pub use collector::EndpointCollector;
pub use state::StateSource;

use crate::lifecycle::Readiness;

/// Media type of the exposition.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the admin listener shows.
#[derive(Clone)]
pub struct Admin {
    pub registry: Arc<Registry>,
    pub readiness: Readiness,
    pub state: Arc<StateSource>,
}

impl Admin {
    pub fn router(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .route("/state", get(show_state))
            .with_state(self)
    }
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

async fn readyz(State(admin): State<Admin>) -> Response {
    let pending = admin.readiness.pending();
    let status = if pending.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": pending.is_empty(), "pending": pending }))).into_response()
}

async fn show_state(State(admin): State<Admin>) -> Response {
    Json(admin.state.read()).into_response()
}
