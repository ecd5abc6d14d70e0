//! What an engine must have told of, since it answered.

use std::time::Duration;

use warmpath_kv::Millis;

use super::Reporter;
use crate::ledger::Entry;
use crate::reported::Usage;
use crate::sources::Evidence;

impl Reporter {
    /// Whether the request made its place store a block, of which its events have to tell. Where somebody writes the index, or
    /// waits to, this is not waited for.
    pub(super) fn note_owed(&self, entry: &Entry, usage: Usage, elapsed: Duration) {
        let place = entry.reservation.place;
        let Some(forecast) = entry.forecast.as_ref().filter(|forecast| forecast.size_tokens > 0) else {
            return;
        };
        let stats = self.index.try_read().and_then(|index| index.stream_stats(place));
        let Some(block) = stats.and_then(|stream| stream.block_size) else { return };
        let size = forecast.size_tokens;
        let (found, evidence) = match (usage.cached_tokens, usage.prompt_tokens) {
            // Of several prompts, the sums say nothing of each.
            (Some(cached), Some(prompt)) if prompt == size => (cached, Evidence::Said),
            (None, _) => (forecast.predicted(place).unwrap_or(0), Evidence::Expected),
            (Some(_), _) => return,
        };
        if size / block > found.div_ceil(block) {
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            let decided_at = Millis(self.clock.now().0.saturating_sub(elapsed_ms));
            self.sources.owes(place, evidence, decided_at);
        }
    }
}
