//! Endpoints, their load and their hits → the candidates of a ranking. Pure.

use std::sync::Arc;

use warmpath_core::rank::{Candidate, Home};
use warmpath_kv::{Hits, Millis, StreamId};

use crate::engines::Directory;
use crate::fleet::{Endpoint, RankMeter, Snapshot};
use crate::ledger::Ledger;
use crate::models::Target;

/// Beats after which an engine's own figures are too old to correct ours.
pub const SAMPLE_BEATS: u64 = 4;

/// A candidate's place in the fleet, parallel to the slice that is ranked.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) endpoint: Arc<str>,
    /// None: the endpoint has only one.
    pub(super) rank: Option<u32>,
    pub(super) place: StreamId,
    pub(super) meter: Arc<RankMeter>,
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

/// Those that may get something new: neither draining nor failing all the time. Where that would leave nobody, failing ones
/// are used, and where all drain, all.
fn willing<'a>(endpoints: &[&'a Endpoint], now: Millis) -> Vec<&'a Endpoint> {
    let those = |wanted: &dyn Fn(&Endpoint) -> bool| -> Vec<&'a Endpoint> {
        endpoints.iter().copied().filter(|endpoint| wanted(endpoint)).collect()
    };
    let trusted = those(&|endpoint| !endpoint.meter.is_draining() && endpoint.meter.admits(now));
    if !trusted.is_empty() {
        return trusted;
    }
    let staying = those(&|endpoint| !endpoint.meter.is_draining());
    if staying.is_empty() { endpoints.to_vec() } else { staying }
}

/// Those that may get this request: the willing ones and, whether it may get something new or not, the one that alone can
/// answer it.
pub(super) fn choosable<'a>(
    endpoints: &[&'a Endpoint],
    keeper: Option<&str>,
    now: Millis,
) -> Vec<&'a Endpoint> {
    let mut chosen = willing(endpoints, now);
    let kept = endpoints.iter().copied().find(|endpoint| Some(&*endpoint.name) == keeper);
    if let Some(kept) = kept.filter(|kept| chosen.iter().all(|other| other.name != kept.name)) {
        chosen.push(kept);
    }
    chosen
}

/// What candidates are made of beside the endpoints themselves.
#[derive(Clone, Copy)]
pub(super) struct Circumstances<'a> {
    pub(super) ledger: &'a Ledger,
    pub(super) now: Millis,
    /// Time between two readings of an engine's figures.
    pub(super) beat_ms: u64,
    pub(super) slow_start_ms: u64,
    /// Where the gateways are.
    pub(super) zone: Option<&'a str>,
    pub(super) other_zone_tokens: f64,
    /// Of a prompt with so many tokens; None: nothing has to be agreed with others.
    pub(super) home: Option<(Home, u32)>,
}

/// One candidate per rank of each endpoint. `cached` tells the tokens that a place holds.
pub(super) fn gather(
    endpoints: &[&Endpoint],
    cached: impl Fn(StreamId) -> u32,
    circumstances: Circumstances<'_>,
) -> (Vec<Seat>, Vec<Candidate>) {
    let Circumstances { ledger, now, beat_ms, slow_start_ms, .. } = circumstances;
    let mut seats = Vec::with_capacity(endpoints.len());
    let mut candidates = Vec::with_capacity(endpoints.len());
    // Where all are young, as after a rollout, none is spared for another.
    let ramps = endpoints.iter().map(|endpoint| endpoint.meter.ramp(slow_start_ms, now));
    let oldest = ramps.fold(0.0, f64::max);
    for endpoint in endpoints {
        let several = endpoint.ranks.len() > 1;
        let penalty = endpoint.errors.penalty(now) + circumstances.zone_tokens(endpoint);
        let ramp = endpoint.meter.ramp(slow_start_ms, now) / oldest;
        for (number, rank) in (0u32..).zip(&endpoint.ranks) {
            let own = ledger.load(rank.place);
            let engine = rank.gauge.fresh(now, beat_ms.saturating_mul(SAMPLE_BEATS));
            let foreign = engine.map_or(0, |sample| sample.foreign_sequences);
            let foreign_waiting = engine.map_or(0, |sample| sample.foreign_waiting);
            seats.push(Seat {
                endpoint: endpoint.name.clone(),
                rank: several.then_some(number),
                place: rank.place,
                meter: rank.meter.clone(),
            });
            candidates.push(Candidate {
                cached_tokens: cached(rank.place),
                queued_tokens: own.queued_tokens,
                waiting_sequences: u32::try_from(own.waiting + foreign_waiting).unwrap_or(u32::MAX),
                active_sequences: u32::try_from(own.sequences + foreign).unwrap_or(u32::MAX),
                kv_usage: engine.map_or(0.0, |sample| sample.kv_usage),
                room_tokens: engine.and_then(|sample| sample.room_tokens),
                pressure: engine.map_or(0.0, |sample| sample.pressure),
                slowness: rank.meter.slowness(),
                capacity: endpoint.spec.capacity.weight(),
                ramp,
                recent_tokens: rank.meter.recent_tokens(now),
                away_tokens: 0.0,
                penalty,
                last_cold: rank.meter.last_cold(),
            });
        }
    }
    if let Some((home, prompt_tokens)) = circumstances.home {
        let places = seats.iter().map(|seat: &Seat| (&*seat.endpoint, seat.rank.unwrap_or(0)));
        home.settle(prompt_tokens, places, &mut candidates);
    }
    (seats, candidates)
}

// === impl Circumstances ===

impl Circumstances<'_> {
    /// z: what it costs that it is in another zone; nothing where either is not told.
    fn zone_tokens(&self, endpoint: &Endpoint) -> f64 {
        match (self.zone, &endpoint.spec.zone) {
            (Some(here), Some(there)) if here != there => self.other_zone_tokens,
            _ => 0.0,
        }
    }
}
