//! Hot path: what a ranking can go by.

use std::sync::Arc;

use warmpath_kv::index::StreamState;
use warmpath_kv::{StreamId, Trust};

use super::measure::Measured;
use super::round::Basis;
use super::{Decider, Reason, Verdict};
use crate::answers::ResponseKey;
use crate::fleet::{Endpoint, Snapshot};

/// Costs within one block are equal; this is a block where none has been learnt.
const TIE_TOKENS_DEFAULT: u32 = 16;

impl Decider {
    /// The name of the endpoint, if it is one of these, that keeps a response.
    pub(super) fn keeper(
        &self,
        key: ResponseKey,
        fleet: &Snapshot,
        endpoints: &[&Endpoint],
    ) -> Option<Arc<str>> {
        let place = self.books.lock().answers().place(key)?;
        let (keeper, _) = fleet.by_place(place)?;
        endpoints.iter().any(|endpoint| endpoint.name == keeper.name).then(|| keeper.name.clone())
    }

    /// Whether the hits say anything about these endpoints.
    pub(super) fn basis(&self, endpoints: &[&Endpoint], measured: Result<Measured, Reason>) -> Basis {
        let known = self.known_stream(endpoints);
        let block_tokens = known.and_then(|stream| stream.block_size);
        let (measured, verdict) = match measured {
            Err(reason) => (None, Verdict::LoadOnly(reason)),
            Ok(measured) => {
                let is_short = block_tokens.is_some_and(|block| measured.prompt_tokens <= block);
                let verdict = match measured.cut_by {
                    _ if known.is_none() => Verdict::LoadOnly(Reason::NoEvents),
                    Some(reason) if is_short => Verdict::LoadOnly(reason),
                    Some(reason) => Verdict::ScoredInPart(reason),
                    // The last token is always computed, so a prompt of one block has no block to reuse.
                    None if is_short => Verdict::LoadOnly(Reason::BelowBlock),
                    None => Verdict::Scored,
                };
                (Some(measured), verdict)
            }
        };
        Basis { measured, verdict, block_tokens: block_tokens.unwrap_or(TIE_TOKENS_DEFAULT) }
    }

    /// A stream of these endpoints whose cache is known, with its block size if it can be: one that has told of
    /// blocks, or one that is live and so is known to hold none; the size of its blocks is guessed at best.
    fn known_stream(&self, endpoints: &[&Endpoint]) -> Option<StreamState> {
        let places = endpoints.iter().flat_map(|endpoint| &endpoint.ranks).map(|rank| rank.place);
        let mut live = None;
        for stream in places.filter_map(|place| self.cached.stream(place)).filter(|s| s.trust.is_scored()) {
            if stream.has_told {
                return Some(stream);
            }
            let is_better = live.is_none_or(|live: StreamState| live.block_size.is_none());
            if stream.trust == Trust::Live && is_better {
                live = Some(stream);
            }
        }
        live
    }

    /// Whether all that the place's cache holds is known.
    pub(super) fn is_cache_known(&self, place: StreamId) -> bool {
        self.cached.stream(place).is_some_and(|stream| stream.trust == Trust::Live)
    }
}
