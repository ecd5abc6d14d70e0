//! `/blocks?endpoint=HOST:PORT&rank=N`: what the index holds of one engine, for an audit that compares it with the engine's
//! own cache.
//!
//! Reading takes time in proportion to the blocks, some ten nanoseconds each, and events wait for it: an audit may ask now
//! and then, a dashboard should not.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde::{Deserialize, Serialize};

use super::Admin;
use super::query::Query;

/// What to show.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// `host:port`, as in `/state`.
    endpoint: String,
    #[serde(default)]
    rank: usize,
}

#[derive(Debug, Serialize)]
struct Blocks {
    endpoint: String,
    rank: usize,
    /// How far the blocks may be believed.
    trust: &'static str,
    /// Number of the last batch that was applied; null before the first.
    last_seq: Option<u64>,
    /// By hash.
    blocks: Vec<Block>,
}

#[derive(Debug, Serialize)]
struct Block {
    /// The engine's own hash: its last eight bytes as an integer, big-endian.
    hash: u64,
    /// Physical blocks that hold it, in all KV groups together.
    copies: u32,
}

pub(super) async fn show(State(admin): State<Admin>, Query(wanted): Query<Wanted>) -> Response {
    let source = &admin.state;
    let fleet = source.view.current();
    let endpoint = fleet.by_name(&wanted.endpoint);
    let Some(rank) = endpoint.and_then(|endpoint| endpoint.ranks.get(wanted.rank)) else {
        let Wanted { endpoint, rank } = wanted;
        let why = format!("endpoint {endpoint:?} has no rank {rank} here; /state lists what there is\n");
        return (StatusCode::NOT_FOUND, why).into_response();
    };
    let status = source.ingest.status().into_iter().find(|status| status.id == rank.place);
    let Some(status) = status else {
        let why = format!("endpoint {:?} has no KV events configured\n", wanted.endpoint);
        return (StatusCode::NOT_FOUND, why).into_response();
    };
    let mut blocks: Vec<Block> = {
        let index = source.index.read();
        index.copies(rank.place).map(|(hash, copies)| Block { hash: hash.0, copies }).collect()
    };
    blocks.sort_unstable_by_key(|block| block.hash);
    Json(Blocks {
        endpoint: wanted.endpoint,
        rank: wanted.rank,
        trust: status.trust.name(),
        last_seq: status.last_seq,
        blocks,
    })
    .into_response()
}
