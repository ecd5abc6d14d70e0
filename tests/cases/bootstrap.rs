//! What is shipped works as it is: Envoy takes the bootstrap, and refuses what the filter refuses; the indexer's sample has
//! affinity.

use serde_json::{Value, json};
use warmpath_core::limits::FOLLOWED_WINDOW;
use warmpath_tests::case::{case, fresh_dir};
use warmpath_tests::envoy::Bootstrap;
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::paths;
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::scripted::Script;
use warmpath_tests::stack::Stack;

#[test]
fn envoy_takes_the_bootstrap_as_it_is_shipped() {
    paths::filter_wasm().unwrap();
    let dir = fresh_dir(&paths::target().join("e2e/bootstrap/as_shipped"));
    let output = Bootstrap::shipped().unwrap().validate(&dir).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_wrong_filter_configuration_is_refused_with_every_reason() {
    paths::filter_wasm().unwrap();
    let dir = fresh_dir(&paths::target().join("e2e/bootstrap/wrong_filter"));
    let mut bootstrap = Bootstrap::shipped().unwrap();
    bootstrap
        .set_filter(&json!({ "indexer": { "cluster": "" }, "max_body_bytes": 1, "colour": "red" }))
        .unwrap();
    let output = bootstrap.validate(&dir).unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{log}");
    for field in ["cluster", "max_body_bytes", "colour"] {
        assert!(log.contains(field), "no word about `{field}`:\n{log}");
    }
}

#[test]
fn the_filter_lets_go_of_a_large_body_before_envoy_refuses_it() {
    let mut bootstrap = Bootstrap::shipped().unwrap();
    let filter = bootstrap.filter().unwrap();
    let hosts =
        "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0";
    let envoy = bootstrap.at(&format!("{hosts}/request_body_buffer_limit")).unwrap().as_u64().unwrap();
    let filter = filter["max_body_bytes"].as_u64().unwrap();
    assert!(filter < envoy, "max_body_bytes {filter} is not below request_body_buffer_limit {envoy}");
}

/// A header of another name: the filter decides, its receipts say so, and nothing comes of it.
#[test]
fn an_envoy_that_ignores_what_was_decided_is_told_in_its_log() {
    let stack = Stack::builder().map(|stack| {
        stack.recorders(3).script(Script::Silence).workers(1).bootstrap(|bootstrap| {
            let policy = &mut bootstrap.cluster("llm")?["load_balancing_policy"]["policies"][0];
            let sources = &mut policy["typed_extension_config"]["typed_config"]["override_host_sources"];
            sources[0]["header"] = json!("x-gateway-destination");
            Ok(())
        })
    });
    case(stack, async |stack| {
        stack.scripted()?.play(Script::Rank(vec![(stack.recorders[0].address(), None)]));
        for _ in 0..FOLLOWED_WINDOW {
            assert_eq!(stack.send(completion("hello")).await?.receipt().outcome, "scored");
        }
        let went_astray: usize = stack.recorders[1..].iter().map(|recorder| recorder.take().len()).sum();
        assert!(went_astray > 16, "Envoy's own policy sent {went_astray} of {FOLLOWED_WINDOW} elsewhere");
        eventually("the log says so, with an example", async || {
            let log = stack.envoy.process().log();
            let example = format!("the last one was for {} and was served by", stack.recorders[0].address());
            seen_if(log.contains(&example) && log.contains("x-gateway-destination-endpoint"), log)
        })
        .await?;
        let counted = stack.envoy.metrics().await?.sum("warmpath_filter_astray_total", &[]);
        assert_eq!(counted, went_astray as f64);
        Ok(())
    });
}

/// The sample with the ports and the model of the engines that run here, and nothing else changed.
fn sample_for(config: &Value) -> Value {
    let text = std::fs::read_to_string(paths::root().join("deploy/warmpath.yaml")).unwrap();
    let mut sample: Value = serde_yaml_ng::from_str(&text).unwrap();
    let engines = config["endpoints"]["static"].as_array().unwrap();
    let shipped = sample["endpoints"]["static"].as_array_mut().unwrap();
    assert_eq!(shipped.len(), engines.len());
    for (shipped, engine) in shipped.iter_mut().zip(engines) {
        for (key, value) in shipped.as_object_mut().unwrap() {
            *value = engine[key].clone();
        }
    }
    let model = &mut sample["models"][0];
    for key in ["name", "tokenizer_dir"] {
        assert!(model[key].is_string(), "{key}");
        model[key] = config["models"][0][key].clone();
    }
    sample
}

// C41 (kserve/kserve#5432)
#[test]
fn with_the_shipped_configuration_prefixes_are_found_again() {
    let stack = Stack::builder().map(|stack| stack.indexer(|config| *config = sample_for(config)));
    case(stack, async |stack| {
        for seed in 0..4 {
            let first = stack.send_alone(completion(text(seed, 320))).await?.receipt();
            let again = stack.send_alone(completion(text(seed, 320))).await?;
            assert_eq!(again.receipt().endpoint, first.endpoint);
            assert_eq!(again.usage()?.cached_tokens, Some(304));
        }
        let indexer = stack.indexer()?.metrics().await?;
        assert!(
            indexer.sum("warmpath_index_admissions_total", &[("cause", "stored")]) >= 80.0,
            "from events"
        );
        Ok(())
    });
}
