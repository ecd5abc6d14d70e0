//! An engine that only writes down what reaches it, byte by byte. For everything that is about the request and not
//! about caches.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::ports::Port;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// `GET`, `POST`, …
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, whole.
    pub body: Bytes,
}

/// A server on a port of its own. Answers every request with a small completion, and 200 unless told otherwise.
#[derive(Debug)]
pub struct Recorder {
    port: Port,
    status: Arc<AtomicU16>,
    received: Arc<Mutex<Vec<Received>>>,
    server: JoinHandle<()>,
}

impl Recorder {
    /// Starts one on this address.
    pub async fn start(ip: IpAddr) -> Result<Self> {
        let port = Port::claim_on(ip)?;
        let listener = TcpListener::bind(port.to_string()).await?;
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let status = Arc::new(AtomicU16::new(200));
        let server = tokio::spawn(serve(listener, Arc::clone(&status), Arc::clone(&received)));
        Ok(Self { port, status, received, server })
    }

    /// Answers requests with this status from now on; it stays healthy and shows its metrics.
    pub fn answer_with(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// `ip:port`.
    pub fn address(&self) -> String {
        self.port.to_string()
    }

    /// Takes what has arrived, oldest first; health checks, scrapes and questions about what it is are left out.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.received.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, status: Arc<AtomicU16>, received: Arc<Mutex<Vec<Received>>>) {
    while let Ok((connection, _peer)) = listener.accept().await {
        let (status, received) = (Arc::clone(&status), Arc::clone(&received));
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, Arc::clone(&status), Arc::clone(&received)));
            // A connection that breaks is the client's business; what had arrived is written down.
            drop(
                auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(connection), service)
                    .await,
            );
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    status: Arc<AtomicU16>,
    received: Arc<Mutex<Vec<Received>>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut code = 200;
    let answer = match head.uri.path() {
        "/health" => "",
        "/metrics" => "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n",
        // Of no release, and with no adapters.
        "/version" | "/v1/models" => "{}",
        _ => {
            received.lock().unwrap_or_else(PoisonError::into_inner).push(Received {
                method: head.method.to_string(),
                path: head.uri.to_string(),
                headers: head.headers,
                body,
            });
            code = status.load(Ordering::Relaxed);
            r#"{"choices":[{"index":0,"text":"ok"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#
        }
    };
    let mut response = Response::new(Full::new(Bytes::from_static(answer.as_bytes())));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
    Ok(response)
}
