use super::*;
use crate::config::Config;

fn configs(yaml: &str) -> Vec<ModelConfig> {
    Config::parse(yaml).unwrap().models
}

fn target(model: usize, adapter: Option<&str>) -> Option<Target> {
    Some(Target { model: ModelIndex(model), adapter: adapter.map(Arc::from) })
}

#[test]
fn names_aliases_and_adapters_mean_their_model() {
    let one = Models::load(&configs("models: [{ name: a, aliases: [b], adapters: [c] }]")).unwrap();
    let names = [("a", None), ("b", None), ("c", Some("c")), ("", None)];
    for (name, adapter) in names {
        assert_eq!(one.resolve(name), target(0, adapter), "{name}");
    }
    assert_eq!(one.resolve("d"), None);
    let two = Models::load(&configs("models: [{ name: a }, { name: b }]")).unwrap();
    assert_eq!(two.resolve(""), None, "no name means the only model, and there are two");
}

/// Endpoints refer to models by their index, which no reload may move.
#[test]
fn a_model_keeps_its_index_through_reloads_and_a_removed_one_resolves_no_more() {
    let none = |_| None;
    let first = Models::load(&configs("models: [{ name: a }, { name: b, aliases: [x] }]")).unwrap();
    let second =
        first.succeeded_by(&configs("models: [{ name: c }, { name: b, adapters: [x] }]"), &none).unwrap();
    assert_eq!(second.resolve("a"), None);
    assert_eq!(second.resolve("b"), target(1, None));
    assert_eq!(second.resolve("x"), target(1, Some("x")));
    assert_eq!(second.resolve("c"), target(2, None));
    assert!(second.get(ModelIndex(0)).is_none());
    assert_eq!(&*second.name(ModelIndex(0)), "a", "its endpoints still have a name to show");
    let third = second.succeeded_by(&configs("models: [{ name: a }]"), &none).unwrap();
    assert_eq!((third.resolve("a"), third.resolve("")), (target(0, None), target(0, None)));
    assert_eq!(third.resolve("b"), None);
}

#[test]
fn the_release_is_the_configured_one_or_what_the_engines_report_or_the_newest_known() {
    let configs = configs("models: [{ name: a, engine_version: \"0.9\" }, { name: b }, { name: c }]");
    let old = EngineVersion::new(0, 20);
    let reported = |index: ModelIndex| (index.0 < 2).then_some(old);
    let models = Models::named(&configs).succeeded_by(&configs, &reported).unwrap();
    let release = |index| models.get(ModelIndex(index)).unwrap().release;
    assert_eq!(release(0), Release { version: EngineVersion::new(0, 9), told_by: ToldBy::Configuration });
    assert_eq!(release(1), Release { version: old, told_by: ToldBy::Engines });
    assert_eq!(release(2), Release { version: EngineVersion::LATEST_KNOWN, told_by: ToldBy::Nobody });
}

#[test]
fn every_model_that_cannot_be_loaded_is_named() {
    let configs = configs(
        "models: [{ name: a, tokenizer_dir: /nor }, { name: b }, { name: c, tokenizer_dir: /nowhere }]",
    );
    let error = Models::load(&configs).unwrap_err().to_string();
    let named = ["models[0].tokenizer_dir: /nor: ", "models[2].tokenizer_dir: /nowhere: "];
    assert!(named.iter().all(|name| error.contains(name)), "{error}");
}
