//! The small endpoints of the engine.

use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use serde_json::{Value, json};

use super::App;
use super::body::{self, TokenizeBody};
use super::error::ApiError;

pub(super) async fn version(State(app): State<App>) -> Json<Value> {
    Json(json!({"version": app.shared().config.vllm_version.to_string()}))
}

pub(super) async fn models(State(app): State<App>) -> Json<Value> {
    let config = &app.shared().config;
    let created = app.0.started_unix as u64;
    let model = |id: &str, parent: Option<&str>| {
        json!({
            "id": id, "object": "model", "created": created, "owned_by": "vllm", "root": id, "parent": parent,
            "max_model_len": config.context_len(),
        })
    };
    let base = std::iter::once(model(&config.model, None));
    let adapters = config.loras.iter().map(|lora| model(lora, Some(&config.model)));
    Json(json!({"object": "list", "data": base.chain(adapters).collect::<Vec<_>>()}))
}

pub(super) async fn tokenize(State(app): State<App>, body: Bytes) -> Result<Json<Value>, ApiError> {
    let mut body: TokenizeBody = body::parse(&body)?;
    app.model(body.model.as_deref())?;
    let tokens = body.tokens(app.shared().text.as_ref())?;
    Ok(Json(
        json!({"count": tokens.len(), "max_model_len": app.shared().config.context_len(), "tokens": tokens}),
    ))
}

/// Answers 200 even when a rank was busy, as the engine does; the body says so.
pub(super) async fn reset_prefix_cache(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    let mut success = true;
    for rank in app.ranks() {
        success &= rank.reset_prefix_cache().await?;
    }
    Ok(Json(json!({"success": success})))
}

/// Where each rank publishes, from 0.31 on.
pub(super) async fn kv_event_sources(State(app): State<App>) -> Result<Json<Value>, StatusCode> {
    let config = &app.shared().config;
    if !config.vllm_version.since(31) {
        return Err(StatusCode::NOT_FOUND);
    }
    let addresses = &app.0.addresses;
    let source = |(rank, events): (usize, &String)| {
        let told = json!({
            "enable_kv_cache_events": true, "publisher": "zmq", "endpoint": as_bound(events),
            "replay_endpoint": addresses.replay.get(rank).map(|address| as_bound(address)),
            "buffer_steps": config.buffer_steps, "hwm": 100_000, "max_queue_size": 100_000, "topic": config.topic,
        });
        (rank.to_string(), told)
    };
    Ok(Json(Value::Object(addresses.events.iter().enumerate().map(source).collect())))
}

/// A real server tells what it was given, which names no address of its own.
fn as_bound(address: &str) -> String {
    let port = address.rsplit(':').next().unwrap_or_default();
    format!("tcp://*:{port}")
}

/// Gives the cache up, which only the next step tells of, and says so in its metrics. Requests are served all the same.
pub(super) async fn sleep(State(app): State<App>) -> Result<StatusCode, ApiError> {
    for rank in app.ranks() {
        rank.reset_prefix_cache().await?;
    }
    app.0.is_asleep.store(true, Ordering::Relaxed);
    Ok(StatusCode::OK)
}

pub(super) async fn wake_up(State(app): State<App>) -> StatusCode {
    app.0.is_asleep.store(false, Ordering::Relaxed);
    StatusCode::OK
}

pub(super) async fn is_sleeping(State(app): State<App>) -> Json<Value> {
    Json(json!({"is_sleeping": app.0.is_asleep.load(Ordering::Relaxed)}))
}
