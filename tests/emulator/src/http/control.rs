//! The emulator's own endpoints, under `/emulator`.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;

use super::App;
use super::body;
use super::error::ApiError;
use crate::faults::{FaultOrder, Faults};
use crate::requests::RequestRecord;
use crate::server::Control;
use crate::state::{self, StateDump};

pub(super) async fn requests(State(app): State<App>) -> Json<Vec<RequestRecord>> {
    Json(app.shared().requests.all())
}

pub(super) async fn clear_requests(State(app): State<App>) -> StatusCode {
    app.shared().requests.clear();
    StatusCode::NO_CONTENT
}

pub(super) async fn faults(State(app): State<App>) -> Json<Faults> {
    Json(app.shared().faults.get())
}

/// Applies an order and answers with what is now to happen. A restart follows the answer, or overtakes it.
pub(super) async fn inject(State(app): State<App>, body: Bytes) -> Result<Json<Faults>, ApiError> {
    let order: FaultOrder = body::parse(&body)?;
    app.shared().faults.apply(&order).map_err(|error| ApiError::bad_request(error.to_string()))?;
    if let Some(restart) = order.restart {
        let down = Duration::from_millis(restart.down_ms);
        let control =
            app.0.control.upgrade().ok_or_else(|| ApiError::bad_request("the server is stopping"))?;
        tokio::spawn(async move {
            // Time for the answer to leave before its connection is cut.
            tokio::time::sleep(ANSWER_FIRST).await;
            if control.send(Control::Restart { down, done: None }).await.is_err() {
                tracing::warn!("restart ordered of a stopped server");
            }
        });
    }
    Ok(Json(app.shared().faults.get()))
}

/// Between the answer to a restart order and the restart.
const ANSWER_FIRST: Duration = Duration::from_millis(20);

pub(super) async fn state(State(app): State<App>) -> Json<StateDump> {
    Json(state::dump(app.shared()).await)
}
