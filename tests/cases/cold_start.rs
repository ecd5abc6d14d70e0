//! The first requests of engines that never served any.

use serde_json::json;
use warmpath_tests::case::case;
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::stack::Stack;

/// So many that chance does not bring all of them back.
const PREFIXES: u64 = 8;

/// The engines compute and cache, but none of their events arrives: what the picks will have brought into their caches is
/// expected by the block size of their metrics.
#[test]
fn prefixes_return_to_their_engine_before_any_event_was_seen() {
    case(Stack::builder(), async |stack| {
        for engine in &stack.engines {
            engine.faults(&json!({ "events": { "silent": true } })).await?;
        }
        let indexer = &stack.indexers[0];
        eventually("the size of the engines' blocks is known from their metrics", async || {
            let state = indexer.state().await?;
            let ranks = state["endpoints"].as_array().into_iter().flatten().map(|e| &e["ranks"][0]["stream"]);
            seen_if(ranks.clone().all(|stream| stream["block_size_guess"] == 16), state.to_string())
        })
        .await?;
        for prefix in 0..PREFIXES {
            let shared = text(prefix, 512);
            let first = stack.send_alone(completion(shared.clone() + &text(100 + prefix, 40))).await?;
            assert_eq!(first.receipt().outcome, "scored", "{first:?}");
            let second = stack.send_alone(completion(shared + &text(200 + prefix, 40))).await?;
            assert_eq!(second.receipt().endpoint, first.receipt().endpoint);
            assert_eq!(second.receipt().cached_tokens, Some(512));
            assert_eq!(second.usage()?.cached_tokens, Some(512), "the engine has it");
        }
        let state = stack.indexers[0].state().await?;
        assert_eq!(state["index"]["references"], 0, "nothing was told");
        // Nor is anything of what follows; so the two agree again.
        for engine in &stack.engines {
            engine.reset_prefix_cache().await?;
        }
        Ok(())
    });
}
