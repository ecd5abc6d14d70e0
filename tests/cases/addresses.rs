//! Addresses of every family: what the indexer names is what Envoy's cluster has.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use warmpath_tests::case::case;
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::stack::Stack;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

// A20 (ai-dynamo/dynamo#12063)
#[test]
fn engines_are_reached_and_scored_over_ipv6_alone_and_beside_ipv4() {
    for families in [[V6, V6], [V6, V4]] {
        let stack = Stack::builder().map(|stack| {
            let mut stack = stack.without_speculation();
            for (number, ip) in families.into_iter().enumerate() {
                stack = stack.engine(number, |engine| engine.ip = ip);
            }
            stack
        });
        case(stack, async |stack| {
            let mut used = BTreeSet::new();
            // Of equals one is drawn: twenty draws of the same are one in half a million.
            for prefix in 0..20 {
                let prompt = text(prefix, 256);
                let first = stack.send_predicted(completion(prompt.clone())).await?.receipt();
                assert!(stack.endpoints().contains(&first.endpoint), "{first:?}");
                // Events came over the same family: what the engine holds is known, and chosen.
                let again = stack.send_predicted(completion(prompt)).await?.receipt();
                assert_eq!((&again.endpoint, again.cached_tokens), (&first.endpoint, Some(240)));
                used.insert(first.endpoint);
            }
            assert_eq!(used.len(), 2, "both were used: {used:?}");
            let metrics = stack.indexer()?.metrics().await?;
            assert_eq!(metrics.sum("warmpath_kv_connected", &[]), 2.0, "both streams are connected");
            Ok(())
        });
    }
}
