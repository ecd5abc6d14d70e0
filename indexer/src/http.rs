//! HTTP towards engines: one question, one answer, bounded in time and size.
//!
//! The only place that knows the client. Plain HTTP/1 to an `ip:port`, as engines serve it; connections are kept and
//! used again.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use thiserror::Error;
use tokio::time::timeout;

/// Asks engines. Clones share their connections.
#[derive(Clone, Debug)]
pub struct EngineClient {
    client: Client<HttpConnector, Full<Bytes>>,
    timeout: Duration,
}

/// What an engine answered, whatever its status.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    #[error("cannot connect: {}", root_cause(.0))]
    Connect(#[source] hyper_util::client::legacy::Error),
    #[error("no answer within {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("the connection broke: {}", root_cause(.0))]
    Broken(#[source] hyper_util::client::legacy::Error),
    /// It did answer; its body broke off or is above the limit.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
    #[error("not a request that can be sent: {0}")]
    Unsendable(#[from] hyper::http::Error),
}

/// What the operating system said, in place of what each layer above it calls that.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

// === impl EngineClient ===

impl EngineClient {
    /// A client whose questions take at most `timeout` each.
    pub fn new(timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        // Half of the whole time, so that a host that swallows connections is told from an engine that is busy.
        connector.set_connect_timeout(Some(timeout / 2));
        connector.set_nodelay(true);
        Self { client: Client::builder(TokioExecutor::new()).build(connector), timeout }
    }

    /// Asks `endpoint`, an `ip:port`. `answer_max` is the largest body read, in bytes.
    pub async fn get(&self, endpoint: &str, path: &str, answer_max: usize) -> Result<Answer, AskError> {
        let request = Request::builder().method(Method::GET).uri(format!("http://{endpoint}{path}"));
        self.ask(request.body(Full::default())?, answer_max).await
    }

    /// Sends a JSON text.
    pub async fn post(
        &self,
        endpoint: &str,
        path: &str,
        json: String,
        answer_max: usize,
    ) -> Result<Answer, AskError> {
        let request = Request::builder().method(Method::POST).uri(format!("http://{endpoint}{path}"));
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::from(json))?;
        self.ask(request, answer_max).await
    }

    async fn ask(&self, request: Request<Full<Bytes>>, answer_max: usize) -> Result<Answer, AskError> {
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| {
                if error.is_connect() { AskError::Connect(error) } else { AskError::Broken(error) }
            })?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), answer_max).collect().await;
            let body = body.map_err(|error| AskError::Unreadable(error.to_string()))?.to_bytes();
            Ok(Answer { status, body })
        };
        timeout(self.timeout, exchange).await.unwrap_or(Err(AskError::Silent(self.timeout)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_refuses_a_connection_is_said_to_refuse_it() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let client = EngineClient::new(Duration::from_secs(10));
        let error = client.get(&format!("127.0.0.1:{port}"), "/version", 1000).await.unwrap_err();
        assert!(error.to_string().starts_with("cannot connect: Connection refused"), "{error}");
    }
}
