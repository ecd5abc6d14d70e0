//! An indexer that answers what a case tells it to, and writes down what it is asked. For what a real one never does
//! on purpose: silence, refusals, nonsense.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, header::HeaderValue};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use warmpath_proto::v1::{
    Candidate, EndpointInfo, EndpointSet, Outcome, ReportRequest, ReportResponse, ScoreRequest, ScoreResponse,
};

use crate::ports::Port;

/// How it answers `Score`.
#[derive(Clone, Debug)]
pub enum Script {
    /// A ranking of these endpoints, best first, each with its rank where it has several. They are also told as all
    /// that there are.
    Rank(Vec<(String, Option<u32>)>),
    /// A whole answer.
    Answer(Box<ScoreResponse>),
    /// This gRPC status.
    Status(u32),
    /// A message that is none.
    Garbage,
    /// Headers, and the end: no message and no status.
    Bare,
    /// Nothing, for ever.
    Silence,
}

/// A gRPC server on a port of its own.
#[derive(Debug)]
pub struct ScriptedIndexer {
    port: Port,
    shared: Arc<Mutex<Shared>>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    script: Script,
    asked: Vec<ScoreRequest>,
    reported: Vec<ReportRequest>,
}

impl ScriptedIndexer {
    /// Starts one that answers like this.
    pub async fn start(script: Script) -> Result<Self> {
        let port = Port::claim()?;
        let listener = TcpListener::bind(port.to_string()).await?;
        let shared = Arc::new(Mutex::new(Shared { script, asked: Vec::new(), reported: Vec::new() }));
        let server = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self { port, shared, server })
    }

    /// `ip:port`.
    pub fn address(&self) -> String {
        self.port.to_string()
    }

    /// Answers like this from now on.
    pub fn play(&self, script: Script) {
        lock(&self.shared).script = script;
    }

    /// Takes the questions asked so far, oldest first.
    pub fn take_asked(&self) -> Vec<ScoreRequest> {
        std::mem::take(&mut lock(&self.shared).asked)
    }

    /// Takes the reports that came so far, oldest first.
    pub fn take_reported(&self) -> Vec<ReportRequest> {
        std::mem::take(&mut lock(&self.shared).reported)
    }
}

impl Drop for ScriptedIndexer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, shared: Arc<Mutex<Shared>>) {
    while let Ok((connection, _peer)) = listener.accept().await {
        // Or small answers wait for the other end's delayed acknowledgement; where it fails, they come later.
        drop(connection.set_nodelay(true));
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, Arc::clone(&shared)));
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // A connection that breaks is the asker's business.
            drop(server.serve_connection(TokioIo::new(connection), service).await);
        });
    }
}

type Frames = futures::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, std::convert::Infallible>>>;

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Mutex<Shared>>,
) -> Result<Response<StreamBody<Frames>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    // One message: a byte that says whether it is compressed, its length in four, itself.
    let message = body.get(5..).unwrap_or_default();
    let reply = if head.uri.path().ends_with("/Report") {
        lock(&shared).reported.extend(ReportRequest::decode(message));
        Ok(ReportResponse::default().encode_to_vec())
    } else {
        lock(&shared).asked.extend(ScoreRequest::decode(message));
        let script = lock(&shared).script.clone();
        if matches!(script, Script::Bare) {
            return Ok(Response::new(StreamBody::new(futures::stream::iter(Vec::new()))));
        }
        score(script).await
    };
    Ok(grpc(reply))
}

/// The message, or the status.
async fn score(script: Script) -> Result<Vec<u8>, u32> {
    match script {
        Script::Rank(endpoints) => Ok(ranking(endpoints).encode_to_vec()),
        Script::Answer(answer) => Ok(answer.encode_to_vec()),
        Script::Status(code) => Err(code),
        Script::Garbage => Ok(vec![0xff; 16]),
        // Was answered before.
        Script::Bare => Err(2),
        Script::Silence => std::future::pending().await,
    }
}

fn ranking(endpoints: Vec<(String, Option<u32>)>) -> ScoreResponse {
    let all = endpoints.iter().map(|(endpoint, rank)| EndpointInfo {
        endpoint: endpoint.clone(),
        ranks: rank.map_or(1, |rank| rank + 1),
        active_sequences: 0,
    });
    let all = EndpointSet { version: 1, endpoints: all.collect() };
    let candidates =
        endpoints.into_iter().map(|(endpoint, rank)| Candidate { endpoint, rank, ..Candidate::default() });
    ScoreResponse {
        decision_id: 1,
        candidates: candidates.collect(),
        outcome: Outcome::Scored.into(),
        policy: "scripted".to_owned(),
        endpoints: Some(all),
        ..ScoreResponse::default()
    }
}

fn grpc(reply: Result<Vec<u8>, u32>) -> Response<StreamBody<Frames>> {
    let mut frames = Vec::new();
    let status = match reply {
        Ok(message) => {
            let mut framed = BytesMut::new();
            framed.put_u8(0);
            framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
            framed.put_slice(&message);
            frames.push(Ok(Frame::data(framed.freeze())));
            0
        }
        Err(status) => status,
    };
    let trailers = HeaderMap::from_iter([(
        hyper::header::HeaderName::from_static("grpc-status"),
        HeaderValue::from(status),
    )]);
    frames.push(Ok(Frame::trailers(trailers)));
    let mut response = Response::new(StreamBody::new(futures::stream::iter(frames)));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}
