//! `POST /drain?endpoint=HOST:PORT` and `POST /undrain?…`: an endpoint that is to go gets nothing new; what it has runs on
//! and counts on. Peers that follow this indexer do so too; of several orders the latest holds.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde::Deserialize;
use serde_json::json;

use super::Admin;
use super::query::Query;
use crate::books::Seen;
use crate::receipts::unix_ms;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// `host:port`, as in `/state`.
    #[serde(default)]
    endpoint: String,
}

pub(super) async fn drain(State(admin): State<Admin>, Query(which): Query<Which>) -> Response {
    set(&admin, &which.endpoint, true)
}

pub(super) async fn undrain(State(admin): State<Admin>, Query(which): Query<Which>) -> Response {
    set(&admin, &which.endpoint, false)
}

fn set(admin: &Admin, name: &str, draining: bool) -> Response {
    let source = &admin.state;
    let fleet = source.view.current();
    let Some(endpoint) = fleet.by_name(name) else {
        let why = format!("no endpoint {name:?} here; give ?endpoint=HOST:PORT, one of those in /state\n");
        return (StatusCode::NOT_FOUND, why).into_response();
    };
    let (changes, at_unix_ms) = endpoint.meter.order_draining_now(draining, unix_ms());
    if changes {
        tracing::info!(endpoint = name, draining, "an operator asked for it");
        if !draining {
            endpoint.meter.begin(source.clock.now());
        }
    }
    let mut books = source.books.lock();
    books.saw(endpoint, Seen::Draining { draining, at_unix_ms });
    let active: u64 = endpoint.ranks.iter().map(|rank| books.ledger().load(rank.place).sequences).sum();
    Json(json!({ "endpoint": name, "draining": draining, "active_sequences": active })).into_response()
}
