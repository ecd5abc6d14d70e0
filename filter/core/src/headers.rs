//! Header names that are ours, and what a request's headers say. In: all headers of a request. Out: [`RequestHead`],
//! and the names that must be removed first.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::outcome::Reason;
use crate::path::Target;
use crate::rank::Policy;

/// Where the request should go: up to three `ip:port`, comma-separated, best first.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";
/// The data-parallel rank inside the endpoint.
pub const RANK: &str = "x-data-parallel-rank";
/// Every header of ours begins so, towards the engine and towards the client.
pub const OWN_PREFIX: &str = "x-warmpath-";

/// Answer: how the request was handled, an [`crate::outcome::Outcome`].
pub const OUTCOME: &str = "x-warmpath-outcome";
/// Answer: why it was not scored, a [`crate::outcome::Reason`].
pub const REASON: &str = "x-warmpath-reason";
/// Answer: the policy that ranked.
pub const POLICY: &str = "x-warmpath-policy";
/// Answer: the decision, in hexadecimal, by which an indexer's `/receipts` finds it.
pub const DECISION: &str = "x-warmpath-decision";
/// Answer: the endpoint that really served it.
pub const ENDPOINT: &str = "x-warmpath-endpoint";
/// Answer: tokens of the prompt predicted to be in its cache.
pub const CACHED_TOKENS: &str = "x-warmpath-cached-tokens";
/// Answer: tokens of the prompt.
pub const PROMPT_TOKENS: &str = "x-warmpath-prompt-tokens";

/// A header as the proxy gives it: the name in lower case, the value in any bytes.
pub type Header = (String, Vec<u8>);

/// What the headers of a request say, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// What it wants of an engine, or why it is none of ours.
    pub target: Result<Target, Reason>,
    /// `content-length`, where it is a number.
    pub content_length: Option<u64>,
    /// The body is compressed.
    pub is_encoded: bool,
    /// The body is of a kind that is never JSON.
    pub is_multipart: bool,
    /// The client sends its body only when told to, and the proxy leaves it to the engine to say so: it takes an
    /// `expect: 100-continue` off where it answers by itself.
    pub awaits_engine: bool,
    /// No body follows.
    pub ends: bool,
    /// What it belongs to, by the configured header: requests of one group stay together in a split. 0: not told.
    pub group: u64,
    /// The ranking policy of its route, if it has one.
    pub policy: Option<&'static str>,
}

impl RequestHead {
    /// Reads the headers. `ends`: no body follows.
    pub fn read(headers: &[Header], ends: bool) -> Self {
        let (mut method, mut path) = (b"".as_slice(), b"".as_slice());
        let mut head = Self {
            target: Err(Reason::Path),
            content_length: None,
            is_encoded: false,
            is_multipart: false,
            awaits_engine: false,
            ends,
            group: 0,
            policy: None,
        };
        for (name, value) in headers {
            match name.as_str() {
                ":path" => path = value,
                ":method" => method = value,
                "content-length" => {
                    head.content_length = std::str::from_utf8(value).ok().and_then(|v| v.trim().parse().ok());
                }
                "content-encoding" => {
                    let coding = value.trim_ascii();
                    head.is_encoded |= !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity");
                }
                "content-type" => {
                    head.is_multipart = value
                        .get(..MULTIPART.len())
                        .is_some_and(|start| start.eq_ignore_ascii_case(MULTIPART));
                }
                "expect" => head.awaits_engine |= value.trim_ascii().eq_ignore_ascii_case(GO_AHEAD),
                _ => {}
            }
        }
        head.target = Target::read(method, path);
        head
    }
}

/// The group that the header of this name puts a request in; 0: it is not there, or no header is named.
pub fn group(headers: &[Header], name: &str) -> u64 {
    let value = headers.iter().find(|(given, _)| !name.is_empty() && given.eq_ignore_ascii_case(name));
    value.map_or(0, |(_, value)| {
        let mut hasher = SipHasher13::new();
        hasher.write(value.trim_ascii());
        hasher.finish().max(1)
    })
}

/// The policy that a route names; None: there is none of this name.
pub fn route_policy(name: &[u8]) -> Option<&'static str> {
    let name = std::str::from_utf8(name).ok()?;
    Policy::NAMES.into_iter().find(|known| *known == name)
}

const MULTIPART: &[u8] = b"multipart/";
const GO_AHEAD: &[u8] = b"100-continue";

/// A client must not send this header: it would choose the endpoint, or pretend to be us.
pub fn is_routing_control(name: &str) -> bool {
    let is = |own: &str| name.eq_ignore_ascii_case(own);
    is(DESTINATION)
        || is(RANK)
        || name.get(..OWN_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN_PREFIX))
}

/// May this stand in [`DESTINATION`]? An `ip:port` can hold no separator, and no header any control character.
pub fn is_endpoint(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= crate::limits::ENDPOINT_BYTES_MAX
        && text.bytes().all(|b| b.is_ascii_graphic() && b != b',')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::KnownPath;

    fn head(pairs: &[(&str, &str)]) -> RequestHead {
        let headers: Vec<Header> =
            pairs.iter().map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec())).collect();
        RequestHead::read(&headers, false)
    }

    #[test]
    fn the_head_tells_path_method_and_body() {
        let read = head(&[(":method", "POST"), (":path", "/v1/completions?x"), ("content-length", " 12")]);
        assert_eq!(read.target, Ok(Target::Prompt(KnownPath::Completions)));
        assert_eq!((read.content_length, read.is_encoded, read.is_multipart), (Some(12), false, false));
        assert_eq!(head(&[("content-length", "twelve")]).content_length, None);
        let other = head(&[(":path", "/tokenize"), (":method", "GET")]);
        assert_eq!(other.target, Err(Reason::Method));
        assert_eq!(head(&[(":method", "POST")]).target, Err(Reason::Path));
        assert!(head(&[("content-type", "Multipart/form-data; boundary=x")]).is_multipart);
    }

    #[test]
    fn a_client_that_waits_to_be_told_to_send_is_seen() {
        for (value, awaits) in
            [("100-continue", true), (" 100-Continue", true), ("200-ok", false), ("", false)]
        {
            assert_eq!(head(&[("expect", value)]).awaits_engine, awaits, "{value}");
        }
        assert!(!head(&[("accept", "100-continue")]).awaits_engine);
    }

    #[test]
    fn any_coding_but_identity_is_encoded() {
        for (value, encoded) in
            [("gzip", true), ("zstd", true), ("what", true), ("identity", false), ("", false)]
        {
            assert_eq!(head(&[("content-encoding", value)]).is_encoded, encoded, "{value}");
        }
        assert!(head(&[("content-encoding", "gzip"), ("content-encoding", "identity")]).is_encoded);
    }

    #[test]
    fn a_header_groups_requests() {
        let headers: Vec<Header> = vec![("x-session".to_owned(), b" 7 ".to_vec())];
        let seven = group(&headers, "X-Session");
        assert_ne!(seven, 0);
        assert_eq!(group(&[("x-session".to_owned(), b"7".to_vec())], "x-session"), seven);
        assert_ne!(group(&[("x-session".to_owned(), b"8".to_vec())], "x-session"), seven);
        assert_eq!((group(&headers, ""), group(&headers, "x-user")), (0, 0));
    }

    #[test]
    fn a_route_names_a_policy_that_there_is() {
        assert_eq!(route_policy(b"least_load"), Some("least_load"));
        assert_eq!((route_policy(b"fastest"), route_policy(b"\xff")), (None, None));
    }

    #[test]
    fn routing_controls_are_ours_alone() {
        for name in [DESTINATION, RANK, OUTCOME, "x-warmpath-", "X-Warmpath-Anything", "X-Data-Parallel-Rank"]
        {
            assert!(is_routing_control(name), "{name}");
        }
        for name in
            ["x-warmpat", "x-request-id", "host", "", "x-gateway-destination-endpoint-served", "é-warmpath-"]
        {
            assert!(!is_routing_control(name), "{name}");
        }
    }

    #[test]
    fn an_endpoint_is_one_header_safe_word() {
        for good in ["10.0.0.1:8000", "[fd00::1]:8000"] {
            assert!(is_endpoint(good));
        }
        for bad in ["", "a b", "10.0.0.1:80,10.0.0.2:80", "10.0.0.1:80\r\nx: y", &"1".repeat(81)] {
            assert!(!is_endpoint(bad), "{bad:?}");
        }
    }
}
