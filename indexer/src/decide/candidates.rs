//! Endpoints, their load and their hits → the candidates of a ranking. Pure.

use std::sync::Arc;

use warmpath_core::rank::Candidate;
use warmpath_kv::{Hits, Millis, StreamId};

use crate::engines::Directory;
use crate::fleet::{Endpoint, Snapshot};
use crate::ledger::Ledger;
use crate::models::Target;

/// Beats after which an engine's own figures are too old to correct ours.
const SAMPLE_BEATS: u64 = 4;

/// A candidate's place in the fleet, parallel to the slice that is ranked.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) endpoint: Arc<str>,
    /// None: the endpoint has only one.
    pub(super) rank: Option<u32>,
    pub(super) place: StreamId,
}

/// Usable endpoints that can serve the target: those of its model; of them, where it is an adapter, those that say to
/// have it, or all where none does.
pub(super) fn serving<'a>(
    snapshot: &'a Snapshot,
    target: &Target,
    directory: &Directory,
) -> Vec<&'a Endpoint> {
    let of_model: Vec<_> = snapshot.usable().filter(|endpoint| endpoint.spec.model == target.model).collect();
    let adapter = target.adapter.as_ref().and_then(|name| directory.adapter(name));
    let Some(adapter) = adapter.filter(|adapter| adapter.model == target.model) else { return of_model };
    let holds = |endpoint: &&&Endpoint| adapter.holders.contains(&endpoint.spec.address);
    let holding: Vec<_> = of_model.iter().filter(holds).copied().collect();
    if holding.is_empty() { of_model } else { holding }
}

/// Tokens that a place holds, those in slower media only at their weight.
pub(super) fn weighed(hits: &Hits, place: StreamId, weight: f64) -> u32 {
    let at_hand = hits.tokens(place);
    if hits.slower().is_empty() {
        return at_hand;
    }
    let slower = hits.with_slower(place).saturating_sub(at_hand);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a u32")]
    let weighed = (f64::from(slower) * weight) as u32;
    at_hand + weighed
}

/// One candidate per rank of each endpoint. `cached` tells the tokens that a place holds.
pub(super) fn gather(
    endpoints: &[&Endpoint],
    cached: impl Fn(StreamId) -> u32,
    ledger: &Ledger,
    now: Millis,
    beat_ms: u64,
) -> (Vec<Seat>, Vec<Candidate>) {
    let mut seats = Vec::with_capacity(endpoints.len());
    let mut candidates = Vec::with_capacity(endpoints.len());
    for endpoint in endpoints {
        let several = endpoint.ranks.len() > 1;
        let penalty = endpoint.errors.penalty(now);
        for (number, rank) in (0u32..).zip(&endpoint.ranks) {
            let own = ledger.load(rank.place);
            let engine = rank.gauge.fresh(now, beat_ms.saturating_mul(SAMPLE_BEATS));
            let foreign = engine.map_or(0, |sample| sample.foreign_sequences);
            seats.push(Seat {
                endpoint: endpoint.name.clone(),
                rank: several.then_some(number),
                place: rank.place,
            });
            candidates.push(Candidate {
                cached_tokens: cached(rank.place),
                queued_tokens: own.queued_tokens,
                active_sequences: u32::try_from(own.sequences + foreign).unwrap_or(u32::MAX),
                pressure: engine.map_or(0.0, |sample| sample.pressure),
                penalty,
                ..Candidate::default()
            });
        }
    }
    (seats, candidates)
}
