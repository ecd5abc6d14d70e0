//! What gateways report of requests, checked: events of earlier decisions, and ends of what nobody decided.

use std::time::Duration;

use warmpath_core::outcome;

use crate::answers::ResponseKey;
use crate::ledger::DecisionId;

/// Statuses from here on are the server's fault.
pub const HTTP_SERVER_ERRORS_FROM: u32 = 500;
/// Statuses from here on are failures, whose first byte says nothing of a prefill.
pub const HTTP_ERRORS_FROM: u32 = 400;

/// One reported event, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub decision: Decided,
    /// Since the decision.
    pub elapsed: Duration,
    pub what: Reported,
}

/// Who decided a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    Indexer(DecisionId),
    /// Nobody of us, and why.
    Elsewhere(outcome::Reason),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reported {
    FirstByte {
        /// The endpoint that answers, `ip:port`.
        endpoint: String,
        http_status: u32,
    },
    Alive,
    End {
        /// The endpoint that served it; empty: none was reached.
        endpoint: String,
        /// 0: no answer came.
        http_status: u32,
        usage: Usage,
        /// The response that it made and keeps.
        response: Option<ResponseKey>,
        /// The endpoint, or the way to it, broke.
        is_failure: bool,
    },
}

/// What an answer says of its request, as far as it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens that the engine found in its cache.
    pub cached_tokens: Option<u32>,
    /// Tokens of all that it answered.
    pub completion_tokens: Option<u32>,
}
