//! Headers that choose an endpoint are ours to set: a client's never count, on no path.

use warmpath_tests::case::{case, case_that_leaves};
use warmpath_tests::client::Call;
use warmpath_tests::prompts::completion;
use warmpath_tests::scripted::Script;
use warmpath_tests::stack::{AfterCase, Stack, StackBuilder};

const DESTINATION: &str = "x-gateway-destination-endpoint";

/// Requests of each kind. Where Envoy chooses between three by itself, that all of them go to the forged one by chance
/// happens less than once in 10^11 runs.
const TRIES: usize = 24;

/// Every kind of request that the filter treats differently.
fn every_kind() -> Vec<(&'static str, Call)> {
    vec![
        ("scored", completion("hello")),
        ("no prompt path", Call::get("/")),
        ("not a POST", Call::get("/v1/completions")),
        ("no body", Call::post("/v1/completions", "")),
        ("no JSON", Call::post("/v1/completions", "\u{feff}{]")),
        ("encoded", Call::post("/v1/completions", vec![0x1f, 0x8b, 8]).header("content-encoding", "gzip")),
        ("too large", Call::post("/v1/completions", vec![b' '; 4096])),
    ]
}

/// A forged header to the last of three recorders, in every spelling, with every kind of request: some of them must
/// arrive elsewhere, and none may carry the header on.
async fn forge(stack: &mut Stack) -> anyhow::Result<()> {
    let victim = stack.recorders[2].address();
    for (kind, call) in every_kind() {
        for _ in 0..TRIES {
            let call = call
                .clone()
                .header(DESTINATION, &victim)
                .header("X-Gateway-Destination-Endpoint", &victim)
                .header("x-warmpath-policy", "round_robin")
                .header("x-warmpath-endpoint", &victim);
            assert_eq!(stack.send(call).await?.status, 200, "{kind}");
        }
        let received: Vec<_> = stack.recorders.iter().map(|recorder| recorder.take()).collect();
        assert_eq!(received.iter().map(Vec::len).sum::<usize>(), TRIES, "{kind}");
        assert!(received[2].len() < TRIES, "{kind}: the forged header decided");
        for request in received.iter().flatten() {
            let ours = |name: &str| name.starts_with("x-warmpath") || name == DESTINATION;
            assert!(!request.headers.keys().any(|name| ours(name.as_str())), "{kind}: {:?}", request.headers);
        }
    }
    Ok(())
}

/// A small limit makes "too large" cheap.
fn small_bodies() -> anyhow::Result<StackBuilder> {
    Ok(Stack::builder()?.recorders(3).filter(|filter| filter["max_body_bytes"] = 2048.into()))
}

// F1 (agentgateway/agentgateway#3144)
#[test]
fn a_forged_destination_never_counts_while_an_indexer_decides() {
    case(small_bodies().map(|stack| stack.script(Script::Silence)), async |stack| {
        stack.scripted()?.play(Script::Rank(vec![(stack.recorders[0].address(), None)]));
        forge(stack).await
    });
}

// F1 (agentgateway/agentgateway#3144)
#[test]
fn a_forged_destination_never_counts_without_an_indexer() {
    case(small_bodies().map(|stack| stack.indexers(0)), async |stack| forge(stack).await);
}

// F1 (agentgateway/agentgateway#3144)
#[test]
fn a_forged_destination_never_counts_after_the_indexer_died() {
    let left = AfterCase { indexers_may_be_gone: true, ..AfterCase::default() };
    case_that_leaves(left, small_bodies(), async |stack| {
        stack.indexer()?.process().kill()?;
        forge(stack).await
    });
}

// F1 (agentgateway/agentgateway#3144)
#[test]
fn envoys_admin_port_cannot_be_reached_through_the_header() {
    let stack = Stack::builder().map(|stack| stack.recorders(1).script(Script::Silence));
    case(stack, async |stack| {
        let admin = stack.envoy.admin_address();
        // Not even an indexer could send a request there.
        stack.scripted()?.play(Script::Rank(vec![(admin.clone(), None)]));
        for call in [Call::get("/stats"), completion("hello"), Call::post("/quitquitquit", "")] {
            let answer = stack.send(call.header(DESTINATION, &admin)).await?;
            assert_eq!(answer.status, 200);
        }
        assert_eq!(stack.recorders[0].take().len(), 3, "all of them went to the only engine");
        Ok(())
    });
}
