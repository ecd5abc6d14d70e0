//! Hot path: finds prompts that are equal but for a short span near their beginning, and names where it is.
//!
//! A nonce or a clock in the first lines of a prompt makes everything behind it new to every cache: to the engine it is
//! a miss like any other, and nobody sees why. In: the text of each prompt, as it is rendered. Out: a counter, one line in
//! the log and an entry in `/state`, with a place in bytes and never with text. It changes no decision.
//!
//! What is compared and when it is named is in [`heads`]; this module has the lock, the counter and the log. Where
//! another thread is comparing, a prompt is not looked at: nobody waits here.

mod heads;

use std::collections::HashMap;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde::Serialize;
use warmpath_kv::Millis;

use crate::clock::Clock;
use heads::{Heads, Sight};

/// Between two lines in the log about one model, in milliseconds: an hour. The remedy is in the hands of those who write
/// the prompts, and takes them longer.
const LOG_PAUSE_MS: u64 = 3_600_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ModelLabels {
    pub model: String,
}

/// A place where prompts of a model differ although what follows is equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolatileHead {
    pub model: String,
    /// Of the first byte that differs, in the rendered prompt.
    pub byte_offset: usize,
    /// Length of the longest such span seen.
    pub span_bytes: usize,
    /// Prompts that were new in that span.
    pub prompts: u64,
}

/// The heads of all models. Their number is that of the configured models.
#[derive(Debug)]
pub struct VolatileHeads {
    models: Mutex<HashMap<String, OfModel>>,
    prompts: Family<ModelLabels, Counter>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct OfModel {
    heads: Heads,
    logged_at: Option<Millis>,
}

// === impl VolatileHeads ===

impl VolatileHeads {
    pub fn new(clock: Clock) -> Self {
        Self { models: Mutex::default(), prompts: Family::default(), clock }
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "volatile_heads",
            "Prompts that differ from earlier ones in a short span near their beginning only",
            self.prompts.clone(),
        );
    }

    /// Looks at one prompt.
    pub fn see(&self, model: &str, text: &str) {
        let Some(mut models) = self.models.try_lock() else { return };
        if !models.contains_key(model) {
            models.insert(model.to_owned(), OfModel::default());
        }
        let Some(of_model) = models.get_mut(model) else { return };
        let Sight::Volatile { named } = of_model.heads.see(text.as_bytes()) else { return };
        let now = self.clock.now();
        let is_due = of_model.logged_at.is_none_or(|last| now.since(last) >= LOG_PAUSE_MS);
        let line = named.filter(|_| is_due);
        if line.is_some() {
            of_model.logged_at = Some(now);
        }
        drop(models);
        self.prompts.get_or_create(&ModelLabels { model: model.to_owned() }).inc();
        if let Some(found) = line {
            tracing::warn!(
                model,
                byte_offset = found.offset,
                span_bytes = found.span,
                prompts = found.fresh,
                hint = "put what changes with every request behind what stays the same",
                "prompts are equal but for a short span near their beginning; no cache can reuse what follows it"
            );
        }
    }

    /// What is named at the moment.
    pub fn named(&self) -> Vec<VolatileHead> {
        let models = self.models.lock();
        let all = models.iter().flat_map(|(model, of_model)| {
            of_model.heads.named().map(|found| VolatileHead {
                model: model.clone(),
                byte_offset: found.offset,
                span_bytes: found.span,
                prompts: found.fresh,
            })
        });
        let mut all: Vec<VolatileHead> = all.collect();
        all.sort_by(|a, b| (&a.model, a.byte_offset).cmp(&(&b.model, b.byte_offset)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_kept_apart_and_told_in_their_order() {
        let heads = VolatileHeads::new(Clock::start());
        let rest = "the same for all of them. ".repeat(60);
        for nonce in 0..50 {
            for model in ["b", "a"] {
                heads.see(model, &format!("{model} {nonce:016x}\n{rest}"));
            }
            heads.see("quiet", &rest);
        }
        let named = heads.named();
        let places: Vec<(&str, usize)> = named.iter().map(|n| (n.model.as_str(), n.byte_offset)).collect();
        assert_eq!(places, [("a", 16), ("b", 16)], "the last two digits of 50 numbers differ");
        let counted = heads.prompts.get_or_create(&ModelLabels { model: "a".to_owned() }).get();
        assert_eq!(counted, 49);
    }
}
