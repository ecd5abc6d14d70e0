//! An engine that only writes down what reaches it, byte by byte. For everything that is about the request and not
//! about caches.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

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

/// The header of an answer that says how long it was held back, in µs, from the last byte of the request's body on.
pub const HELD_HEADER: &str = "x-held-us";

/// A server on a port of its own. Answers every request with a small completion, at once and with 200 unless told
/// otherwise.
#[derive(Debug)]
pub struct Recorder {
    port: Port,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

/// What its connections have in common.
#[derive(Debug)]
struct Shared {
    status: AtomicU16,
    hold_us: AtomicU64,
    received: Mutex<Vec<Received>>,
}

impl Recorder {
    /// Starts one on this address.
    pub async fn start(ip: IpAddr) -> Result<Self> {
        let port = Port::claim_on(ip)?;
        let listener = TcpListener::bind(port.to_string()).await?;
        let shared = Arc::new(Shared {
            status: AtomicU16::new(200),
            hold_us: AtomicU64::new(0),
            received: Mutex::default(),
        });
        let server = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self { port, shared, server })
    }

    /// Answers requests with this status from now on; it stays healthy and shows its metrics.
    pub fn answer_with(&self, status: u16) {
        self.shared.status.store(status, Ordering::Relaxed);
    }

    /// Holds every answer back for this long from now on.
    pub fn hold(&self, time: Duration) {
        self.shared.hold_us.store(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// `ip:port`.
    pub fn address(&self) -> String {
        self.port.to_string()
    }

    /// Takes what has arrived, oldest first; health checks, scrapes and questions about what it is are left out.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.shared.received.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((connection, _peer)) = listener.accept().await {
        // Or small answers wait for the other end's delayed acknowledgement; where it fails, they come later.
        drop(connection.set_nodelay(true));
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, Arc::clone(&shared)));
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
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let whole = Instant::now();
    let mut code = 200;
    let answer = match head.uri.path() {
        "/health" => "",
        "/metrics" => "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n",
        // Of no release, and with no adapters.
        "/version" | "/v1/models" => "{}",
        _ => {
            shared.received.lock().unwrap_or_else(PoisonError::into_inner).push(Received {
                method: head.method.to_string(),
                path: head.uri.to_string(),
                headers: head.headers,
                body,
            });
            code = shared.status.load(Ordering::Relaxed);
            let hold = Duration::from_micros(shared.hold_us.load(Ordering::Relaxed));
            if !hold.is_zero() {
                tokio::time::sleep(hold).await;
            }
            r#"{"choices":[{"index":0,"text":"ok"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#
        }
    };
    let mut response = Response::new(Full::new(Bytes::from_static(answer.as_bytes())));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
    let held = u64::try_from(whole.elapsed().as_micros()).unwrap_or(u64::MAX);
    response.headers_mut().insert(HELD_HEADER, held.into());
    Ok(response)
}
