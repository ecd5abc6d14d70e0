//! Several clusters behind one route: what the filter names counts only inside the cluster that Envoy has chosen.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use warmpath_tests::case::case;
use warmpath_tests::envoy::Bootstrap;
use warmpath_tests::prompts::completion;
use warmpath_tests::scripted::Script;
use warmpath_tests::stack::Stack;

const ROUTE: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes/0/route";
/// Told by the answer: the cluster that Envoy chose.
const POOL: &str = "x-pool";

/// A second cluster like `llm`, and a route that gives it a tenth. The first has the first two of the hosts, the second
/// the rest, or none.
fn split(bootstrap: &mut Bootstrap, second_is_empty: bool) -> Result<()> {
    let first = bootstrap.cluster("llm")?;
    let hosts = first.pointer_mut("/load_assignment/endpoints/0/lb_endpoints").context("no hosts")?;
    let rest = hosts.as_array_mut().context("no hosts")?.split_off(2);
    let mut second = first.clone();
    second["name"] = "llm-b".into();
    second["load_assignment"]["cluster_name"] = "llm-b".into();
    second["load_assignment"]["endpoints"][0]["lb_endpoints"] =
        if second_is_empty { json!([]) } else { Value::Array(rest) };
    bootstrap.at("/static_resources/clusters")?.as_array_mut().context("no clusters")?.push(second);
    let route = bootstrap.at(ROUTE)?.as_object_mut().context("no route")?;
    route.remove("cluster");
    let weighted = |name: &str, weight: u32| {
        json!({
            "name": name,
            "weight": weight,
            "response_headers_to_add": [{ "header": { "key": POOL, "value": name } }],
        })
    };
    route.insert(
        "weighted_clusters".to_owned(),
        json!({ "clusters": [weighted("llm", 90), weighted("llm-b", 10)] }),
    );
    Ok(())
}

// E23 (istio/istio#61594)
#[test]
fn what_is_decided_for_all_pools_never_leads_into_another_one() {
    let stack = Stack::builder().map(|stack| {
        let stack = stack.recorders(4).script(Script::Silence);
        stack.bootstrap(|bootstrap| split(bootstrap, false))
    });
    case(stack, async |stack| {
        let places: Vec<String> = stack.recorders.iter().map(|recorder| recorder.address()).collect();
        // The ranking knows nothing of pools, and begins with one of the second.
        let ranking = [2, 0, 3].map(|place| (places[place].clone(), None));
        stack.scripted()?.play(Script::Rank(ranking.to_vec()));
        let mut served = BTreeMap::<(String, usize), usize>::new();
        for _ in 0..1000 {
            let answer = stack.send(completion("hello")).await?;
            let endpoint = answer.receipt().endpoint;
            let place = places.iter().position(|place| *place == endpoint).context("a stranger answered")?;
            let pool = answer.header(POOL).context("no pool")?.to_owned();
            ensure!(answer.status == 200 && (pool == "llm") == (place < 2), "{pool} was served by {place}");
            *served.entry((pool, place)).or_default() += 1;
        }
        // In its pool each found the first of the list that is there.
        let second = served[&("llm-b".to_owned(), 2)];
        assert!((50..200).contains(&second), "{served:?}");
        assert_eq!(served[&("llm".to_owned(), 0)], 1000 - second, "{served:?}");
        Ok(())
    });
}

// E23 (istio/istio#61594)
#[test]
fn a_pool_without_hosts_costs_its_own_share_only() {
    let stack = Stack::builder().map(|stack| {
        let stack = stack.recorders(2).script(Script::Silence);
        stack.bootstrap(|bootstrap| split(bootstrap, true))
    });
    case(stack, async |stack| {
        stack.scripted()?.play(Script::Rank(vec![(stack.recorders[0].address(), None)]));
        for _ in 0..200 {
            let answer = stack.send(completion("hello")).await?;
            let expected = if answer.header(POOL) == Some("llm") { 200 } else { 503 };
            assert_eq!(answer.status, expected);
        }
        Ok(())
    });
}

// E24 (istio/istio#57855)
#[test]
fn of_replicas_on_one_address_the_port_that_was_named_is_reached() {
    let stack = Stack::builder().map(|stack| stack.recorders(3).script(Script::Silence));
    case(stack, async |stack| {
        for place in [2, 0, 1, 2] {
            stack.scripted()?.play(Script::Rank(vec![(stack.recorders[place].address(), None)]));
            stack.send(completion("hello")).await?;
            let arrived: Vec<usize> = stack.recorders.iter().map(|recorder| recorder.take().len()).collect();
            assert!(arrived[place] == 1 && arrived.iter().sum::<usize>() == 1, "{place}: {arrived:?}");
        }
        Ok(())
    });
}

// E30 (kubernetes-sigs/gateway-api-inference-extension#2936)
#[test]
fn a_list_that_is_used_up_leaves_the_last_attempt_to_the_cluster() {
    const DEAD: [&str; 2] = ["127.0.0.1:9", "127.0.0.1:7"];
    let stack = Stack::builder()
        .map(|stack| stack.recorders(2).dead_host(DEAD[0]).dead_host(DEAD[1]).script(Script::Silence));
    case(stack, async |stack| {
        let dead = DEAD.map(|host| (host.to_owned(), None));
        stack.scripted()?.play(Script::Rank(dead.to_vec()));
        for _ in 0..20 {
            let answer = stack.send(completion("hello")).await?;
            assert_eq!(answer.status, 200);
            assert!(stack.endpoints().contains(&answer.receipt().endpoint), "{:?}", answer.receipt());
        }
        Ok(())
    });
}
