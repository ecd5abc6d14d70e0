//! The HTTP side of an engine: answers with what a test says.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Makes the answer to a JSON body; None: 404.
type Answerer = Box<dyn Fn(&Value) -> Option<(u16, String)> + Send>;

/// A server on a free port; paths that nobody set are not found.
pub(crate) struct HttpEngine {
    /// `ip:port`.
    pub(crate) address: String,
    pages: Pages,
    server: JoinHandle<()>,
}

type Pages = Arc<Mutex<HashMap<String, Answerer>>>;

impl HttpEngine {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let pages = Pages::default();
        let router = Router::new().fallback(answer).with_state(pages.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, pages, server }
    }

    /// Answers every question at `path` with this.
    pub(crate) fn say(&self, path: &str, page: Value) {
        self.say_text(path, page.to_string());
    }

    /// The same, which need not be JSON.
    pub(crate) fn say_text(&self, path: &str, page: String) {
        self.pages.lock().insert(path.to_owned(), Box::new(move |_| Some((200, page.clone()))));
    }

    /// Answers questions at `path` by their body.
    pub(crate) fn answer(&self, path: &str, by: impl Fn(&Value) -> Option<(u16, Value)> + Send + 'static) {
        let as_text = move |body: &Value| by(body).map(|(status, page)| (status, page.to_string()));
        self.pages.lock().insert(path.to_owned(), Box::new(as_text));
    }

    /// Lists the base model `tiny` and these adapters, each loaded from a folder of its name.
    pub(crate) fn list(&self, adapters: &[&str]) {
        let base = json!({ "id": "tiny", "object": "model", "root": "/models/tiny", "parent": null });
        let adapters = adapters.iter().map(|name| {
            json!({ "id": name, "object": "model", "root": format!("/loras/{name}"), "parent": "tiny" })
        });
        let data: Vec<Value> = std::iter::once(base).chain(adapters).collect();
        self.say("/v1/models", json!({ "object": "list", "data": data }));
    }

    /// Answers nothing any more.
    pub(crate) fn fall_silent(&self) {
        self.pages.lock().clear();
    }

    pub(crate) async fn stop(self) {
        self.server.abort();
        let _cancelled = self.server.await;
    }
}

async fn answer(State(pages): State<Pages>, uri: Uri, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let answer = pages.lock().get(uri.path()).and_then(|by| by(&body));
    match answer {
        Some((status, page)) => (StatusCode::from_u16(status).unwrap(), page).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
