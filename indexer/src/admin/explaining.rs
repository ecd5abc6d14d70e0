//! `/receipts`: what the last decisions went by. `POST /explain`: what one would go by, without routing anything.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde::Deserialize;
use warmpath_core::rank::Policy;

use super::Admin;
use super::query::Query;
use crate::explain;
use crate::receipts::{Receipt, Wanted};

/// Receipts shown unless more are asked for.
const LIMIT_DEFAULT: usize = 20;

/// Which receipts to show.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Selection {
    /// As in the header `x-warmpath-decision`.
    decision: Option<String>,
    /// That was picked, or used.
    endpoint: Option<String>,
    policy: Option<String>,
    /// At most [`crate::receipts::SHOWN_MAX`] are shown.
    limit: Option<usize>,
}

/// How the body came.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Way {
    #[serde(default = "chat")]
    path: String,
    policy: Option<String>,
}

fn chat() -> String {
    "/v1/chat/completions".to_owned()
}

/// The newest first.
pub(super) async fn receipts(State(admin): State<Admin>, Query(selection): Query<Selection>) -> Response {
    let Selection { decision, endpoint, policy, limit } = selection;
    let wanted = Wanted { decision, endpoint, policy, limit: limit.unwrap_or(LIMIT_DEFAULT) };
    let newest = admin.receipts.newest(&wanted);
    Json(newest.iter().map(|receipt| &**receipt).collect::<Vec<&Receipt>>()).into_response()
}

pub(super) async fn explain(State(admin): State<Admin>, Query(way): Query<Way>, body: Bytes) -> Response {
    let policy = match &way.policy {
        None => None,
        Some(name) => match admin.decider.policy(name) {
            Some(policy) => Some(policy),
            None => {
                let why = format!("no policy {name:?}; there are {}\n", Policy::NAMES.join(", "));
                return (StatusCode::BAD_REQUEST, why).into_response();
            }
        },
    };
    match explain::question(&way.path, &body, policy) {
        Ok(question) => Json(admin.decider.explain(question).await).into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\n")).into_response(),
    }
}
