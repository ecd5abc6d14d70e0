//! What goes into a session and what comes out of it.

use crate::headers::RequestHead;
use crate::outcome::{Outcome, Reason};
use crate::request::PromptRequest;
use crate::ring::{EndpointSet, Place};

/// What happened to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Input<'a> {
    /// Its headers came.
    Headers(RequestHead),
    /// More of its body came: `bytes` is all that has come so far.
    BodyChunk {
        /// Bytes that the proxy holds.
        bytes: usize,
        /// That was all.
        ends: bool,
    },
    /// Its trailers came, and with them the end of its body.
    Trailers,
    /// The body, as asked for by [`Effect::ReadBody`].
    Body(&'a [u8]),
    /// The question was sent, as this call.
    Asked(u32),
    /// The indexer's answer.
    Reply(Reply),
    /// The question could not be sent, or the call failed.
    Failure(Failure),
    /// Time has passed.
    Tick,
    /// The headers of the answer came.
    AnswerHeaders {
        /// HTTP status.
        status: u32,
        /// The endpoint that answers; empty: the proxy itself.
        endpoint: String,
        /// No body follows.
        ends: bool,
    },
    /// More of the answer's body came.
    AnswerChunk {
        /// The chunk's beginning, as much as [`Window::head`] asked for.
        head: &'a [u8],
        /// The chunk, or only its end.
        tail: &'a [u8],
        /// That was all.
        ends: bool,
    },
    /// The trailers of the answer came.
    AnswerTrailers,
    /// It is over, whatever the way. Comes exactly once, last.
    Log(Ending),
}

/// What the shell must do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// Hold the request back: answer the callback with a pause. Without it the request goes on.
    Hold,
    /// Read this many bytes of the collected body, and give them back as [`Input::Body`].
    ReadBody(usize),
    /// Ask the indexer, and tell by [`Input::Asked`] or [`Input::Failure`] whether that worked.
    Ask(Box<Ask<'a>>),
    /// Forget the call: its answer would come too late.
    Cancel(u32),
    /// Tell the proxy where to send the request.
    Route(Route),
    /// Count how the request is handled. At most once a request.
    Settled(Settled),
    /// Let the request that was held go on.
    Resume,
    /// Set these headers on the answer.
    Receipt(Vec<(&'static str, String)>),
}

/// How much of a chunk of the answer is looked at, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Of its beginning.
    pub head: usize,
    /// Of its end; at least 1, since an empty end tells that nothing came.
    pub tail: usize,
}

/// A question for the indexer.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask<'a> {
    /// The request.
    pub request: PromptRequest<'a>,
    /// Version of the endpoint set that is held; 0: none.
    pub endpoints_version: u64,
    /// The policy to use; empty: the indexer's.
    pub policy: String,
    /// What stays together in a split of policies.
    pub group: u64,
    /// How long the answer is waited for.
    pub timeout_us: u64,
}

/// The indexer's answer to a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Names the decision in reports.
    pub decision_id: u64,
    /// Best first; may be empty.
    pub candidates: Vec<Candidate>,
    /// Ranked by load alone, not by what endpoints hold.
    pub load_only: bool,
    /// Why by load alone; of a scored request, why only the beginning of its prompt is known. None: nothing to say.
    pub reason: Option<Reason>,
    /// Tokens of the first prompt; 0: not known.
    pub prompt_tokens: u32,
    /// The policy that ranked.
    pub policy: String,
    /// The set of endpoints, where it has changed.
    pub endpoints: Option<EndpointSet>,
}

/// One entry of a ranking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where.
    pub place: Place,
    /// Tokens of the first prompt predicted to be in its cache.
    pub cached_tokens: u32,
}

/// Why there is no answer from the indexer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It could not be reached, or did not answer in time.
    Unavailable,
    /// It found the question invalid: asking again would not help, and it is not down.
    Rejected,
    /// Its answer could not be read.
    BadReply,
}

impl Failure {
    /// What a gRPC status other than 0 means. Proxies tell timeouts as 14 or 1, so those two are alike.
    pub fn of_grpc_status(status: u32) -> Self {
        const INVALID_ARGUMENT: u32 = 3;
        const OUT_OF_RANGE: u32 = 11;
        match status {
            INVALID_ARGUMENT | OUT_OF_RANGE => Self::Rejected,
            _ => Self::Unavailable,
        }
    }
}

/// Where the proxy must send a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Up to three `ip:port`, comma-separated, best first.
    pub destination: String,
    /// The rank inside the endpoint.
    pub rank: Option<u32>,
}

/// How a request is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Who decided.
    pub outcome: Outcome,
    /// Why it was not scored, or by the beginning of its prompt only.
    pub reason: Option<Reason>,
    /// Time between the question and the decision, in microseconds; none: there was none to ask.
    pub added_us: Option<u64>,
    /// Time between the question and what came of it, in microseconds; none: nobody was asked.
    pub asked_us: Option<u64>,
}

/// How a request ended, as the proxy logs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The proxy's response flags, one bit each.
    pub flags: u64,
    /// Upstream attempts; 0: not known.
    pub attempts: u32,
}

impl Ending {
    /// The client closed the connection (bit 14), or reset the stream (bit 28).
    const CLIENT: u64 = 1 << 14 | 1 << 28;
    /// No healthy upstream, request timeout, local and remote reset, connection failure and termination, overflow
    /// (bits 1 to 7), retry limit (15), protocol error (23).
    const UPSTREAM: u64 = 0b1111_1110 | 1 << 15 | 1 << 23;

    /// The client went away.
    pub fn by_client(self) -> bool {
        self.flags & Self::CLIENT != 0
    }

    /// The endpoint, or the way to it, broke.
    pub fn by_upstream(self) -> bool {
        self.flags & Self::UPSTREAM != 0
    }
}
