//! How a request was handled, and why: one closed set of names, used alike as metric label, log field and header value.

use std::fmt;

/// What decided where a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The indexer, with its prefix index.
    Scored,
    /// The indexer, by load alone.
    LoadOnly,
    /// The filter's own hashing, because no indexer answered.
    Fallback,
    /// The proxy's load-balancing policy: the filter had no say.
    Passed,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 4] = [Self::Scored, Self::LoadOnly, Self::Fallback, Self::Passed];

    /// Its name in metrics, logs and headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scored => "scored",
            Self::LoadOnly => "load_only",
            Self::Fallback => "fallback",
            Self::Passed => "passed",
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why a request was not scored.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason { $($(#[$doc])* $variant,)* }

        impl Reason {
            /// Every reason, in the order of `filter/README.md`.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name in metrics, logs and headers.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

reasons! {
    // Seen in the headers: the body is not looked at.
    /// The path is none of those that carry a prompt.
    Path = "path",
    /// The path does not take this method.
    Method = "method",
    /// No body.
    EmptyBody = "empty_body",
    /// The body is larger than `max_body_bytes`.
    BodyTooLarge = "body_too_large",
    /// The body is compressed.
    ContentEncoding = "content_encoding",
    /// The body is no JSON object.
    NotJson = "not_json",
    /// The client waits to be told to send its body, and the proxy leaves that to the engine.
    ExpectContinue = "expect_continue",
    /// The body did not begin in time, or the proxy does not show bodies while headers are held.
    BodyNotSeen = "body_not_seen",

    // Seen in the body: it cannot be asked about.
    /// JSON that is broken, or not UTF-8.
    Unreadable = "unreadable",
    /// JSON nested deeper than the reader follows.
    TooDeep = "too_deep",
    /// `model` or `cache_salt` is longer than any engine allows.
    FieldTooLong = "field_too_long",

    // The request was over before a decision.
    /// The proxy answered it by itself.
    AnsweredEarly = "answered_early",
    /// It ended without an answer.
    ClientGone = "client_gone",

    // No indexer decided.
    /// No answer within the deadline.
    Deadline = "deadline",
    /// The call failed.
    Unavailable = "unavailable",
    /// Not asked, because earlier calls failed.
    CircuitOpen = "circuit_open",
    /// The indexer refused the question as invalid: versions that do not fit.
    Rejected = "rejected",
    /// The indexer's answer could not be read.
    BadReply = "bad_reply",
    /// The indexer knows no usable endpoint.
    NoEndpoints = "no_endpoints",

    // Ranked by load alone, because the filter found no prompt that stands for tokens.
    /// Nothing is computed for it: it counts tokens, or is about a response that an engine keeps.
    NoPrefill = "no_prefill",
    /// Prompts of the model, or of this kind, are not rendered.
    NotRenderable = "not_renderable",
    /// The field with the prompt is absent or empty.
    NoPrompt = "no_prompt",
    /// The field with the prompt has a shape that engines refuse.
    BadPrompt = "bad_prompt",
    /// The prompt is given as embeddings.
    PromptEmbeds = "prompt_embeds",
    /// A token id is negative, fractional or too large.
    TokenOutOfRange = "token_out_of_range",
    /// A text holds half of a UTF-16 surrogate pair.
    LoneSurrogate = "lone_surrogate",
    /// More prompts than the contract allows.
    TooManyPrompts = "too_many_prompts",
    /// More token ids than the contract allows.
    TooManyTokens = "too_many_tokens",
    /// A field that changes the prompt has a value that cannot be followed.
    UnsupportedField = "unsupported_field",

    // Ranked by load alone, because the indexer said so.
    /// Sent to the endpoint that keeps the response it goes on from, or is about.
    PreviousResponse = "previous_response",
    /// Nobody knows which endpoint keeps the response it goes on from, or is about.
    PreviousResponseUnknown = "previous_response_unknown",
    /// The prompt holds pictures, sound or video.
    Media = "media",
    /// The indexer has no tokenizer for the model.
    NoTokenizer = "no_tokenizer",
    /// The indexer does not know the model.
    UnknownModel = "unknown_model",
    /// The prompt is no longer than one block: no cache can help.
    BelowBlock = "below_block",
    /// No event stream of a candidate can be believed, or none is configured.
    NoEvents = "no_events",
    /// Too many prompts wait for the indexer's tokenizers.
    Busy = "busy",
    /// The indexer could not render or tokenize within the deadline.
    Late = "late",
    /// The indexer's tokenizer broke down.
    Failed = "failed",
    /// A reason that this version of the filter does not know.
    Other = "other",
}

impl Reason {
    /// The reason of this name; names of a newer indexer are [`Reason::Other`].
    pub fn by_name(name: &str) -> Self {
        Self::ALL.iter().copied().find(|r| r.name() == name).unwrap_or(Self::Other)
    }

    /// The request was never a candidate for routing, so that nobody keeps books about it.
    pub fn is_foreign(self) -> bool {
        matches!(self, Self::Path | Self::Method)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_distinct_label_values_and_round_trip() {
        let names: BTreeSet<&str> = Reason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            assert!(reason.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{reason}");
            assert_eq!(Reason::by_name(reason.name()), *reason);
        }
        assert_eq!(Reason::by_name("invented_tomorrow"), Reason::Other);
    }

    #[test]
    fn the_readme_lists_every_reason_and_outcome() {
        let readme = include_str!("../../README.md");
        for name in Reason::ALL.iter().map(|r| r.name()).chain(Outcome::ALL.map(Outcome::name)) {
            assert!(readme.contains(&format!("| `{name}` |")), "filter/README.md has no row for `{name}`");
        }
    }
}
