//! An HTTP client that keeps what a case needs to know of an answer: when its first byte came, its events, its receipt.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::{Bytes, BytesMut};
use futures::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Longer than anything that works takes, even on a busy machine; a hang ends here and is an error.
const PATIENCE: Duration = Duration::from_secs(60);

type Body = BoxBody<Bytes, std::convert::Infallible>;

/// How the length of a request's body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// `content-length`.
    Length,
    /// `transfer-encoding: chunked` in pieces of this many bytes; over HTTP/2: data frames without a length.
    Chunked(usize),
    /// The same with trailers after it, which HTTP/1 leaves out unless they are announced.
    Trailers(usize),
}

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct Call {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
    framing: Framing,
}

impl Call {
    /// A `GET` without a body.
    pub fn get(path: &str) -> Self {
        Self {
            method: Method::GET,
            path: path.to_owned(),
            headers: Vec::new(),
            body: Bytes::new(),
            framing: Framing::Length,
        }
    }

    /// A `POST` of these bytes as JSON, with their length.
    pub fn post(path: &str, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, body: body.into(), ..Self::get(path) }
            .header("content-type", "application/json")
    }

    /// A `POST` of this value.
    pub fn json(path: &str, body: &Value) -> Self {
        Self::post(path, body.to_string())
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With another method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// With another framing.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// The bytes of its body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    fn into_request(self, authority: &str) -> Result<Request<Body>> {
        let mut request =
            Request::builder().method(self.method.clone()).uri(format!("http://{authority}{}", self.path));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let body = match self.framing {
            Framing::Length => Full::new(self.body).boxed(),
            Framing::Chunked(size) => StreamBody::new(stream::iter(pieces(self.body, size))).boxed(),
            Framing::Trailers(size) => {
                let names = ["x-checksum", "x-gateway-destination-endpoint"];
                let trailers =
                    names.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("7")));
                let last = Frame::trailers(HeaderMap::from_iter(trailers));
                let pieces = pieces(self.body, size).into_iter().chain([Ok(last)]);
                StreamBody::new(stream::iter(pieces)).boxed()
            }
        };
        request.body(body).context("no valid request")
    }
}

fn pieces(mut body: Bytes, size: usize) -> Vec<Result<Frame<Bytes>, std::convert::Infallible>> {
    let mut pieces = Vec::new();
    while !body.is_empty() {
        let piece = body.split_to(size.clamp(1, body.len()));
        pieces.push(Ok(Frame::data(piece)));
    }
    pieces
}

/// A client with its connections. Cheap to clone; clones share the connections.
#[derive(Clone, Debug)]
pub struct Client {
    http1: legacy::Client<HttpConnector, Body>,
    http2: legacy::Client<HttpConnector, Body>,
}

impl Default for Client {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let builder = || legacy::Client::builder(TokioExecutor::new());
        Self { http1: builder().build(connector.clone()), http2: builder().http2_only(true).build(connector) }
    }
}

impl Client {
    /// Sends over HTTP/1.1 to `authority` (`ip:port`) and reads the answer to its end.
    pub async fn send(&self, authority: &str, call: Call) -> Result<Answer> {
        Self::exchange(&self.http1, authority, call).await
    }

    /// The same over HTTP/2, without an upgrade.
    pub async fn send_http2(&self, authority: &str, call: Call) -> Result<Answer> {
        Self::exchange(&self.http2, authority, call).await
    }

    /// The same as [`Client::send`] for an answer that may break off: what came of it, and what broke it.
    pub async fn send_until_it_breaks(
        &self,
        authority: &str,
        call: Call,
    ) -> Result<(Answer, Option<String>)> {
        let what = format!("{} {authority}{}", call.method, call.path);
        let request = call.into_request(authority)?;
        let sent = Instant::now();
        let read = async {
            let response = self.http1.request(request).await?;
            anyhow::Ok(Answer::read_until_it_breaks(response, sent).await)
        };
        match tokio::time::timeout(PATIENCE, read).await {
            Ok(answer) => {
                let (answer, broken) = answer.with_context(|| what)?;
                Ok((answer, broken.map(|error| error.to_string())))
            }
            Err(_) => bail!("{what}: no answer after {} s", PATIENCE.as_secs()),
        }
    }

    async fn exchange(
        client: &legacy::Client<HttpConnector, Body>,
        authority: &str,
        call: Call,
    ) -> Result<Answer> {
        let what = format!("{} {authority}{}", call.method, call.path);
        let request = call.into_request(authority)?;
        let sent = Instant::now();
        let read = async {
            let response = client.request(request).await?;
            Answer::read(response, sent).await
        };
        match tokio::time::timeout(PATIENCE, read).await {
            Ok(answer) => answer.with_context(|| what),
            Err(_) => bail!("{what}: no answer after {} s", PATIENCE.as_secs()),
        }
    }
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// From sending to the first byte of the body, or to its end where it has none.
    pub first_byte: Duration,
    /// From sending to the end.
    pub total: Duration,
}

impl Answer {
    async fn read(response: Response<hyper::body::Incoming>, sent: Instant) -> Result<Self> {
        match Self::read_until_it_breaks(response, sent).await {
            (answer, None) => Ok(answer),
            (_, Some(error)) => Err(error.into()),
        }
    }

    async fn read_until_it_breaks(
        response: Response<hyper::body::Incoming>,
        sent: Instant,
    ) -> (Self, Option<hyper::Error>) {
        let (head, mut incoming) = response.into_parts();
        let mut body = BytesMut::new();
        let mut first_byte = None;
        let mut broken = None;
        while let Some(frame) = incoming.frame().await {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => {
                    first_byte.get_or_insert_with(|| sent.elapsed());
                    body.extend_from_slice(&data);
                }
                Ok(Err(_trailers)) => {}
                Err(error) => {
                    broken = Some(error);
                    break;
                }
            }
        }
        let total = sent.elapsed();
        let answer = Self {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.freeze(),
            first_byte: first_byte.unwrap_or(total),
            total,
        };
        (answer, broken)
    }

    /// The value of a header, where it is there and text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("status {}, no JSON: {}", self.status, self.text()))
    }

    /// The payloads of a server-sent event stream, `[DONE]` left out.
    pub fn events(&self) -> Result<Vec<Value>> {
        self.text()
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .map(str::trim)
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).with_context(|| format!("no JSON: {data}")))
            .collect()
    }

    /// `usage` of the answer, or of the last event that has one, by the names of the API that it is of.
    pub fn usage(&self) -> Result<Usage> {
        let streamed = self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let answers = if streamed { self.events()? } else { vec![self.json()?] };
        let found = answers.iter().rev().find_map(|answer| {
            let usage = [&answer["usage"], &answer["response"]["usage"]];
            Usage::read(usage.into_iter().find(|usage| usage.is_object())?)
        });
        found.with_context(|| format!("status {}, no usage: {}", self.status, self.text()))
    }

    /// What the filter says of its decision in the `x-warmpath-*` headers.
    pub fn receipt(&self) -> Receipt {
        let text = |name: &str| self.header(name).unwrap_or_default().to_owned();
        let number = |name: &str| self.header(name).and_then(|value| value.parse().ok());
        Receipt {
            outcome: text("x-warmpath-outcome"),
            reason: text("x-warmpath-reason"),
            endpoint: text("x-warmpath-endpoint"),
            cached_tokens: number("x-warmpath-cached-tokens"),
            prompt_tokens: number("x-warmpath-prompt-tokens"),
        }
    }
}

/// What an engine says it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of it that came from the prefix cache; engines leave the field out where there are none, or never send it.
    pub cached_tokens: Option<u64>,
}

impl Usage {
    fn read(usage: &Value) -> Option<Self> {
        let number = |value: &Value| value.as_u64();
        if let Some(prompt_tokens) = number(&usage["prompt_tokens"]) {
            let cached_tokens = number(&usage["prompt_tokens_details"]["cached_tokens"]);
            return Some(Self { prompt_tokens, cached_tokens });
        }
        let input_tokens = number(&usage["input_tokens"])?;
        // `/v1/messages` leaves out of the input what was cached, `/v1/responses` does not.
        match number(&usage["cache_read_input_tokens"]) {
            Some(read) => {
                let created = number(&usage["cache_creation_input_tokens"]).unwrap_or(0);
                Some(Self { prompt_tokens: input_tokens + read + created, cached_tokens: Some(read) })
            }
            None => {
                let cached_tokens = number(&usage["input_tokens_details"]["cached_tokens"]);
                Some(Self { prompt_tokens: input_tokens, cached_tokens })
            }
        }
    }
}

/// What the filter says it decided (`response_header` of its configuration). Empty where a header is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// `scored`, `load_only`, `fallback` or `passed`.
    pub outcome: String,
    /// Why it was not scored.
    pub reason: String,
    /// The endpoint that answered.
    pub endpoint: String,
    /// Tokens predicted to be cached there.
    pub cached_tokens: Option<u64>,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u64>,
}
