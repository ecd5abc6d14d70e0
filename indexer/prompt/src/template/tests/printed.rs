//! Comparison with what Jinja in Python makes of values that are used as texts: `tests/fixtures/printed.jsonl`.

use std::path::Path;

use super::*;

#[test]
fn values_become_the_texts_that_python_makes_of_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/printed.jsonl");
    let fixture = std::fs::read_to_string(path).unwrap();
    let mut lines = fixture.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let v: Json = serde_json::from_str(lines.next().unwrap()["v"].as_str().unwrap()).unwrap();
    let mut faults = Vec::new();
    for case in lines {
        let source = case["source"].as_str().unwrap();
        let ours = compile(source).render(context! { v => from_json(&v) });
        if ours.as_deref() != Ok(case["text"].as_str().unwrap()) {
            faults.push(format!("{source}\n  ours {ours:?}\n  theirs {}", case["text"]));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What Python prints of these holds an address, or is a form of its own.
#[test]
fn values_whose_text_is_not_known_are_not_printed() {
    for source in ["{{ range ~ '' }}", "{{ [raise_exception] }}", "{{ [range] | join }}"] {
        assert_eq!(render(source, json!([1])).unwrap_err().reason(), "not_renderable", "{source}");
    }
}
