//! Reports of gateways ↔ wire.

use std::time::Duration;

use warmpath_core::limits::{ENDPOINT_BYTES_MAX, REPORT_EVENTS_MAX};
use warmpath_core::outcome;
use warmpath_proto::v1::{self as wire, EndCause, ReportRequest, event};

use super::{Invalid, at_most};
use crate::answers::ResponseKey;
use crate::ledger::DecisionId;
use crate::reported::{Decided, HTTP_SERVER_ERRORS_FROM, Report, Reported, Usage};

#[cfg(test)]
mod tests;

/// Elapsed times above a day are nonsense.
const ELAPSED_MAX: Duration = Duration::from_secs(86_400);

/// Checks a batch of reports. Events that say nothing (of a newer filter) are left out.
pub fn reports(request: ReportRequest) -> Result<Vec<Report>, Invalid> {
    at_most("events", request.events.len(), REPORT_EVENTS_MAX)?;
    request.events.into_iter().filter_map(|event| report(event).transpose()).collect()
}

/// Checks one event. None: it says nothing that this version knows.
pub fn report(event: wire::Event) -> Result<Option<Report>, Invalid> {
    let decision = match (event.decision_id, &event.what) {
        (0, Some(event::What::End(end))) => {
            Decided::Elsewhere(outcome::Reason::by_name(&end.fallback_reason))
        }
        (0, _) => Decided::Elsewhere(outcome::Reason::Other),
        (id, _) => Decided::Indexer(DecisionId(id)),
    };
    let what = match event.what {
        None => return Ok(None),
        Some(event::What::FirstByte(first)) => {
            at_most("first_byte.endpoint, in bytes", first.endpoint.len(), ENDPOINT_BYTES_MAX)?;
            Reported::FirstByte { endpoint: first.endpoint, http_status: first.http_status }
        }
        Some(event::What::Alive(_)) => Reported::Alive,
        Some(event::What::End(end)) => {
            at_most("end.endpoint, in bytes", end.endpoint.len(), ENDPOINT_BYTES_MAX)?;
            let is_failure =
                end.http_status >= HTTP_SERVER_ERRORS_FROM || end.cause() == EndCause::UpstreamReset;
            Reported::End {
                endpoint: end.endpoint,
                http_status: end.http_status,
                usage: Usage {
                    prompt_tokens: end.prompt_tokens,
                    cached_tokens: end.cached_tokens,
                    completion_tokens: end.completion_tokens,
                },
                response: ResponseKey::new(end.response_key),
                is_failure,
            }
        }
    };
    Ok(Some(Report { decision, elapsed: Duration::from_micros(event.elapsed_us).min(ELAPSED_MAX), what }))
}

/// A report as it is passed on to another indexer: what [`report`] makes of it is the same.
pub fn event(report: &Report) -> wire::Event {
    let (decision_id, fallback_reason) = match report.decision {
        Decided::Indexer(id) => (id.0, String::new()),
        Decided::Elsewhere(reason) => (0, reason.name().to_owned()),
    };
    let what = match &report.what {
        Reported::FirstByte { endpoint, http_status } => {
            event::What::FirstByte(wire::FirstByte { endpoint: endpoint.clone(), http_status: *http_status })
        }
        Reported::Alive => event::What::Alive(wire::Alive {}),
        Reported::End { endpoint, http_status, usage, response, is_failure } => {
            let cause = if *is_failure { EndCause::UpstreamReset } else { EndCause::Unspecified };
            event::What::End(wire::End {
                endpoint: endpoint.clone(),
                http_status: *http_status,
                cause: cause.into(),
                cached_tokens: usage.cached_tokens,
                prompt_tokens: usage.prompt_tokens,
                completion_tokens: usage.completion_tokens,
                fallback_reason,
                response_key: response.map_or(0, ResponseKey::get),
                ..wire::End::default()
            })
        }
    };
    let elapsed_us = u64::try_from(report.elapsed.as_micros()).unwrap_or(u64::MAX);
    wire::Event { decision_id, elapsed_us, what: Some(what) }
}
