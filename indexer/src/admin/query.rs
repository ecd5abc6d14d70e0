//! The query of a page: an extractor that refuses what the page does not read, so that a misspelt name is never an answer to
//! another question.

use axum::extract::FromRequestParts;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::PAGES;

/// `T` denies fields that it does not know.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = (StatusCode, String);

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let read = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        read.map(|axum::extract::Query(query)| Self(query)).map_err(|rejection| {
            let why = why(&rejection);
            let page = parts.uri.path();
            (
                StatusCode::BAD_REQUEST,
                format!("the query of {page} cannot be read: {why}; there are\n{PAGES}"),
            )
        })
    }
}

/// What is wrong, without the layers that found it.
fn why(rejection: &QueryRejection) -> String {
    let mut cause: &dyn std::error::Error = rejection;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
