//! The request's method and path → what it wants of an engine. In: the `:method` and `:path` headers. Out: a [`Target`],
//! or the reason why the request is none of ours.

use crate::outcome::Reason;
use crate::response::ResponseKey;

/// A path whose requests carry a prompt in their body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownPath {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
    /// `/v1/messages/count_tokens`
    CountTokens,
    /// `/v1/embeddings`
    Embeddings,
    /// `/tokenize`
    Tokenize,
}

impl KnownPath {
    /// Every known path.
    pub const ALL: [Self; 7] = [
        Self::Chat,
        Self::Completions,
        Self::Responses,
        Self::Messages,
        Self::CountTokens,
        Self::Embeddings,
        Self::Tokenize,
    ];

    /// The path without a prefix.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::CountTokens => "/v1/messages/count_tokens",
            Self::Embeddings => "/v1/embeddings",
            Self::Tokenize => "/tokenize",
        }
    }

    /// Does an engine compute a prompt for it? Otherwise it only counts or splits its tokens.
    pub fn prefills(self) -> bool {
        !matches!(self, Self::CountTokens | Self::Tokenize)
    }
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// That its body be worked on: a POST.
    Prompt(KnownPath),
    /// A response that some engine keeps: to read it (GET `/v1/responses/{id}`), to delete it (DELETE) or to cancel it
    /// (POST `/v1/responses/{id}/cancel`). Nobody needs its body.
    Stored(ResponseKey),
}

impl Target {
    /// Reads the headers. Any prefix may stand before a known path, a query after it. Case counts, and so does a trailing
    /// slash: engines answer such a path with 404 or a redirect.
    pub fn read(method: &[u8], path: &[u8]) -> Result<Self, Reason> {
        let end = path.iter().position(|b| matches!(b, b'?' | b'#')).unwrap_or(path.len());
        let path = path.get(..end).unwrap_or_default();
        let (target, fits) = match prompt(path) {
            Some(known) => (Self::Prompt(known), method == b"POST"),
            None => {
                let (key, cancel) = stored(path).ok_or(Reason::Path)?;
                let fits = if cancel { method == b"POST" } else { matches!(method, b"GET" | b"DELETE") };
                (Self::Stored(key), fits)
            }
        };
        if fits { Ok(target) } else { Err(Reason::Method) }
    }
}

fn prompt(path: &[u8]) -> Option<KnownPath> {
    KnownPath::ALL.into_iter().find(|known| path.ends_with(known.name().as_bytes()))
}

/// The response that a path names, and whether it asks to cancel it.
fn stored(path: &[u8]) -> Option<(ResponseKey, bool)> {
    let (path, cancel) = path.strip_suffix(b"/cancel").map_or((path, false), |rest| (rest, true));
    let (base, id) = path.split_at_checked(path.iter().rposition(|b| *b == b'/')?)?;
    let id = id.strip_prefix(b"/").filter(|id| !id.is_empty())?;
    let known = base.ends_with(KnownPath::Responses.name().as_bytes());
    Some((ResponseKey::of(&percent_decoded(id)).filter(|_| known)?, cancel))
}

/// What a segment of a path stands for. A percent sign without two hexadecimal digits stands for itself.
fn percent_decoded(segment: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(segment.len());
    let mut rest = segment;
    while let Some((first, tail)) = rest.split_first() {
        let escaped = if *first == b'%' { tail.split_first_chunk::<2>() } else { None };
        let byte = escaped.and_then(|(digits, tail)| Some((hex(*digits)?, tail)));
        let (byte, tail) = byte.unwrap_or((*first, tail));
        plain.push(byte);
        rest = tail;
    }
    plain
}

fn hex([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(path: &str) -> Result<Target, Reason> {
        Target::read(b"POST", path.as_bytes())
    }

    #[test]
    fn every_known_path_is_found_with_prefix_and_query() {
        for known in KnownPath::ALL {
            for path in [
                known.name().to_owned(),
                format!("/llm/qwen3{}", known.name()),
                format!("{}?api-version=1", known.name()),
                format!("/a{}?next=/v1/completions#x", known.name()),
            ] {
                assert_eq!(post(&path), Ok(Target::Prompt(known)), "{path}");
            }
        }
        assert_eq!(Target::read(b"POST", b"/\xff/tokenize"), Ok(Target::Prompt(KnownPath::Tokenize)));
    }

    #[test]
    fn other_paths_are_not_known() {
        for path in [
            "",
            "/",
            "/v1/models",
            "/v1/completions/",
            "/V1/completions",
            "/v1/chat/completions/render",
            "/v1/messages/count_token",
            "/xv1/completions",
            "/detokenize",
            "/health?x=/v1/completions",
            "/v1/responses/",
            "/v1/responses//cancel",
            "/v1/responses/cancel",
            "/v1/responses/resp_1/input_items",
            "/v1/response/resp_1",
            "/xv1/responses/resp_1",
            "/v1/responses/resp_1/",
        ] {
            for method in [b"POST".as_slice(), b"GET", b"DELETE"] {
                assert_eq!(Target::read(method, path.as_bytes()), Err(Reason::Path), "{path}");
            }
        }
    }

    #[test]
    fn a_stored_response_is_named_by_its_path() {
        let stored = |id: &str| Ok(Target::Stored(ResponseKey::of(id.as_bytes()).expect("a key")));
        for (method, path, id) in [
            ("GET", "/v1/responses/resp_1", "resp_1"),
            ("DELETE", "/llm/v1/responses/resp_1", "resp_1"),
            ("GET", "/v1/responses/resp_1?stream=true&x=/tokenize", "resp_1"),
            ("POST", "/v1/responses/resp_1/cancel", "resp_1"),
            ("GET", "/v1/responses/a%2Fb%c3%A4%zz%2", "a/bä%zz%2"),
        ] {
            assert_eq!(Target::read(method.as_bytes(), path.as_bytes()), stored(id), "{path}");
        }
    }

    #[test]
    fn each_path_has_its_methods() {
        for (path, fitting) in [
            ("/v1/chat/completions", ["POST"].as_slice()),
            ("/v1/responses", &["POST"]),
            ("/v1/responses/resp_1", &["GET", "DELETE"]),
            ("/v1/responses/resp_1/cancel", &["POST"]),
        ] {
            for method in ["POST", "GET", "DELETE", "PUT", "HEAD", "OPTIONS", "post", ""] {
                let read = Target::read(method.as_bytes(), path.as_bytes());
                let fits = fitting.contains(&method);
                assert_eq!(read.err(), (!fits).then_some(Reason::Method), "{method} {path}");
            }
        }
    }
}
