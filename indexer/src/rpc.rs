//! The gRPC edge: wire messages ↔ checked types. Knows no decision; [`convert`] knows the wire, [`status`] the codes.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Request, Response, Status};
use warmpath_proto::v1::scorer_server::Scorer;
use warmpath_proto::v1::{ReportRequest, ReportResponse, ScoreRequest, ScoreResponse};

pub mod convert;
pub mod status;

use crate::decide::Decider;
use crate::report::Reporter;

/// Flow-control windows, in bytes: a 16 MiB body crosses in a handful of round trips, and a connection holds several.
pub const STREAM_WINDOW: u32 = 8 << 20;
pub const CONNECTION_WINDOW: u32 = 32 << 20;

/// Calls at the same time on one connection. A proxy with more opens another; prompts in flight are bounded by the
/// connection's window.
pub const STREAMS_MAX: u32 = 1024;
/// A proxy that vanished without closing is noticed after this long, twice.
pub const KEEPALIVE: Duration = Duration::from_secs(20);

/// Serves `Scorer`.
#[derive(Clone, Debug)]
pub struct ScorerService {
    pub decider: Arc<Decider>,
    pub reporter: Reporter,
}

#[tonic::async_trait]
impl Scorer for ScorerService {
    async fn score(&self, request: Request<ScoreRequest>) -> Result<Response<ScoreResponse>, Status> {
        let request = request.into_inner();
        let known_version = request.endpoints_version;
        let question =
            convert::question(request, &|name| self.decider.policy(name)).map_err(status::invalid)?;
        let decision = self.decider.decide(question).await;
        let fleet = self.decider.fleet();
        let endpoints = (known_version != fleet.version)
            .then(|| convert::endpoint_set(&fleet, |endpoint| self.decider.active_sequences(endpoint)));
        Ok(Response::new(convert::score_response(decision, endpoints)))
    }

    async fn report(&self, request: Request<ReportRequest>) -> Result<Response<ReportResponse>, Status> {
        let reports = convert::reports(request.into_inner()).map_err(status::invalid)?;
        let unknown_decisions = self.reporter.take(reports);
        Ok(Response::new(ReportResponse { unknown_decisions }))
    }
}
