//! Error answers in the shape of the engine.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::rank::RankError;
use crate::text::PromptError;

/// An answer other than success.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    param: Option<&'static str>,
    message: String,
}

impl ApiError {
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "BadRequestError",
            param: None,
            message: message.into(),
        }
    }

    pub(super) fn unknown_model(name: &str) -> Self {
        let message = format!("The model `{name}` does not exist.");
        Self { status: StatusCode::NOT_FOUND, kind: "NotFoundError", param: Some("model"), message }
    }

    pub(super) fn unknown_response(id: &str) -> Self {
        let message = format!("Response with id '{id}' not found.");
        Self {
            status: StatusCode::NOT_FOUND,
            kind: "invalid_request_error",
            param: Some("response_id"),
            message,
        }
    }

    /// An endpoint that this release has not, or not with these flags.
    pub(super) fn not_offered(status: StatusCode, message: &str) -> Self {
        Self { status, kind: "NotFoundError", param: None, message: message.to_owned() }
    }

    pub(super) fn rank_out_of_range(rank: usize, ranks: usize) -> Self {
        Self::bad_request(format!("data_parallel_rank {rank} is out of range [0, {ranks})."))
    }

    pub(super) fn body_too_large() -> Self {
        let message = "the request body could not be read or is too large".to_owned();
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, kind: "BadRequestError", param: None, message }
    }

    /// An error ordered by a test.
    pub(super) fn injected(status: u16) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, kind: "InternalServerError", param: None, message: "injected fault".to_owned() }
    }
}

impl From<RankError> for ApiError {
    fn from(error: RankError) -> Self {
        match error {
            RankError::Refused(refusal) => Self::bad_request(refusal.to_string()),
            RankError::Gone => Self {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                kind: "InternalServerError",
                param: None,
                message: error.to_string(),
            },
        }
    }
}

impl From<PromptError> for ApiError {
    fn from(error: PromptError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = json!({
            "message": self.message, "type": self.kind, "param": self.param, "code": self.status.as_u16(),
        });
        (self.status, Json(json!({ "error": error }))).into_response()
    }
}
