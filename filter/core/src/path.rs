//! The request path → what kind of prompt it carries. In: the `:path` header. Out: a [`KnownPath`], or none.

/// A path whose requests run on an engine.
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
    /// `/v1/embeddings`
    Embeddings,
    /// `/tokenize`
    Tokenize,
}

impl KnownPath {
    /// Every known path.
    pub const ALL: [Self; 6] =
        [Self::Chat, Self::Completions, Self::Responses, Self::Messages, Self::Embeddings, Self::Tokenize];

    /// The path without a prefix.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::Embeddings => "/v1/embeddings",
            Self::Tokenize => "/tokenize",
        }
    }

    /// Reads a `:path` header: any prefix may stand before a known path, a query after it. Case counts, and so does a
    /// trailing slash: engines answer such a path with 404 or a redirect.
    pub fn read(path: &[u8]) -> Option<Self> {
        let end = path.iter().position(|b| matches!(b, b'?' | b'#')).unwrap_or(path.len());
        let path = path.get(..end)?;
        Self::ALL.into_iter().find(|known| path.ends_with(known.name().as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_path_is_found_with_prefix_and_query() {
        for known in KnownPath::ALL {
            for path in [
                known.name().to_owned(),
                format!("/llm/qwen3{}", known.name()),
                format!("{}?api-version=1", known.name()),
                format!("/a{}?next=/v1/completions#x", known.name()),
            ] {
                assert_eq!(KnownPath::read(path.as_bytes()), Some(known), "{path}");
            }
        }
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
            "/v1/messages/count_tokens",
            "/xv1/completions",
            "/detokenize",
            "/health?x=/v1/completions",
        ] {
            assert_eq!(KnownPath::read(path.as_bytes()), None, "{path}");
        }
        assert_eq!(KnownPath::read(b"/\xff/v1/completions"), Some(KnownPath::Completions));
    }
}
