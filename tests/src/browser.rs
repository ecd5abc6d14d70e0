//! A page in a real browser: a server on loopback gives it its files and takes the one answer that it posts.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::case::fresh_dir;
use crate::paths;
use crate::ports::Port;
use crate::process::Process;

/// Longer than a browser takes to start on a busy machine; a page that never answers ends here.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the server has, by path.
#[derive(Debug, Default)]
pub struct Files(HashMap<String, (&'static str, Bytes)>);

impl Files {
    /// One more file. Browsers go by its type, and refuse scripts and modules of a wrong one.
    pub fn with(mut self, path: &str, content_type: &'static str, content: impl Into<Bytes>) -> Self {
        self.0.insert(path.to_owned(), (content_type, content.into()));
        self
    }
}

/// Shows `/` in the browser that `tests/setup.sh` provides, and waits until the page posts something, which it hands
/// back. The browser's log and profile lie in `dir`.
pub async fn answer_of_page(files: Files, dir: &Path) -> Result<Bytes> {
    let port = Port::claim()?;
    let listener = TcpListener::bind(port.to_string()).await?;
    let (post, mut posted) = mpsc::channel(1);
    let server = tokio::spawn(serve(listener, Arc::new(files), post));
    let mut browser = Process::start("browser", &paths::browser()?, arguments(&port, dir), dir)?;
    let answer = tokio::time::timeout(PATIENCE, posted.recv()).await;
    server.abort();
    browser.kill()?;
    match answer {
        Ok(Some(answer)) => Ok(answer),
        _ => {
            bail!("the page posted nothing in {} s; the browser says:\n{}", PATIENCE.as_secs(), browser.log())
        }
    }
}

fn arguments(port: &Port, dir: &Path) -> Vec<String> {
    let profile = fresh_dir(&dir.join("profile"));
    let mut arguments = vec![
        "--headless".to_owned(),
        format!("--user-data-dir={}", profile.display()),
        // In containers the shared memory of the system is small.
        "--disable-dev-shm-usage".to_owned(),
        "--no-proxy-server".to_owned(),
    ];
    if rustix::process::geteuid().is_root() {
        // The browser refuses to start its sandbox as root, as which containers run. It shows our own page only.
        arguments.push("--no-sandbox".to_owned());
    }
    arguments.push(format!("http://{port}/"));
    arguments
}

async fn serve(listener: TcpListener, files: Arc<Files>, post: mpsc::Sender<Bytes>) {
    while let Ok((connection, _peer)) = listener.accept().await {
        let (files, post) = (Arc::clone(&files), post.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| respond(request, Arc::clone(&files), post.clone()));
            let server = auto::Builder::new(TokioExecutor::new());
            // A connection that breaks is the browser's business.
            drop(server.serve_connection(TokioIo::new(connection), service).await);
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    files: Arc<Files>,
    post: mpsc::Sender<Bytes>,
) -> Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    if head.method == Method::POST {
        let body = body.collect().await.context("the page's answer breaks off")?.to_bytes();
        // Only the first one counts.
        drop(post.try_send(body));
        return Ok(status(StatusCode::NO_CONTENT));
    }
    let Some((content_type, content)) = files.0.get(head.uri.path()) else {
        return Ok(status(StatusCode::NOT_FOUND));
    };
    let mut response = Response::new(Full::new(content.clone()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::default();
    *response.status_mut() = status;
    response
}
