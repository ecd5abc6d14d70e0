//! The environment as a whole: what templates print, where they fail, how they are bounded.

use jiff::civil::date;
use minijinja::context;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

mod printed;

fn compile(source: &str) -> ChatTemplate {
    let clock = Arc::new(FixedClock(date(2026, 1, 15).at(12, 34, 56, 0)));
    ChatTemplate::compile(source, ContentDetection::MacroParameters, clock).unwrap()
}

/// `source` rendered with the variable `v`.
fn render(source: &str, v: Json) -> Result<String, PromptError> {
    compile(source).render(context! { v => from_json(&v) })
}

#[track_caller]
fn check(source: &str, v: Json, want: &str) {
    assert_eq!(render(source, v).as_deref(), Ok(want), "{source}");
}

/// What CPython 3.11's `json.dumps` writes of this value is in the tests below.
fn sample() -> Json {
    serde_json::from_str(
        "{\"a\": [1, 2.0, null, true, {\"z\": {}, \"y\": []}], \"k\": \"é\\u007f\\u2028\\\"\\\\/<&>'\\b\\f\\n\\u0001😀\", \
         \"n\": -0.0, \"big\": 12345678901234567890123}",
    )
    .unwrap()
}

#[test]
fn json_is_written_as_python_writes_it() {
    check(
        "{{ v | tojson }}",
        sample(),
        "{\"a\": [1, 2.0, null, true, {\"z\": {}, \"y\": []}], \
         \"k\": \"é\u{7f}\u{2028}\\\"\\\\/<&>'\\b\\f\\n\\u0001😀\", \"n\": -0.0, \"big\": 12345678901234567890123}",
    );
    check(
        "{{ v | tojson(ensure_ascii=true) }}",
        sample(),
        "{\"a\": [1, 2.0, null, true, {\"z\": {}, \"y\": []}], \
         \"k\": \"\\u00e9\\u007f\\u2028\\\"\\\\/<&>'\\b\\f\\n\\u0001\\ud83d\\ude00\", \"n\": -0.0, \
         \"big\": 12345678901234567890123}",
    );
    check(
        "{{ v | tojson(separators=(',', ':'), sort_keys=true) }}",
        sample(),
        "{\"a\":[1,2.0,null,true,{\"y\":[],\"z\":{}}],\"big\":12345678901234567890123,\
         \"k\":\"é\u{7f}\u{2028}\\\"\\\\/<&>'\\b\\f\\n\\u0001😀\",\"n\":-0.0}",
    );
}

#[test]
fn json_is_indented_as_python_indents_it() {
    check(
        "{{ v.a | tojson(indent=2) }}",
        sample(),
        "[\n  1,\n  2.0,\n  null,\n  true,\n  {\n    \"z\": {},\n    \"y\": []\n  }\n]",
    );
    check(
        "{{ v.a | tojson(indent=0) }}",
        sample(),
        "[\n1,\n2.0,\nnull,\ntrue,\n{\n\"z\": {},\n\"y\": []\n}\n]",
    );
    check(
        "{{ v.a | tojson(false, '--') }}",
        sample(),
        "[\n--1,\n--2.0,\n--null,\n--true,\n--{\n----\"z\": {},\n----\"y\": []\n--}\n]",
    );
    check("{{ {1: 2, none: 4, 1.5: 5} | tojson }}", json!(0), "{\"1\": 2, \"null\": 4, \"1.5\": 5}");
}

#[test]
fn values_without_a_json_form_fail_as_in_python() {
    for source in ["{{ v.missing | tojson }}", "{{ range | tojson }}", "{{ v | tojson(unknown=1) }}"] {
        assert_eq!(render(source, json!({})).unwrap_err().reason(), "not_renderable", "{source}");
    }
}

#[test]
fn bare_values_print_as_python_prints_them() {
    check(
        "{{ v }}",
        json!({
            "q": "it's", "d": "say \"x\"", "b": "both ' and \"",
            "c": "\u{0}\u{7f}\u{85}\u{a0}é\u{301}\u{200b}\u{2028}\u{e000}\u{e0041}😀\\n", "f": [1e16, -0.0],
        }),
        "{'q': \"it's\", 'd': 'say \"x\"', 'b': 'both \\' and \"', \
         'c': '\\x00\\x7f\\x85\\xa0é\u{301}\\u200b\\u2028\\ue000\\U000e0041😀\\\\n', 'f': [1e+16, -0.0]}",
    );
    check(
        "{{ v[0] }} {{ v[1] }} {{ v[2] }} {{ v[3] }}",
        json!([1e-7, 1.0, null, true]),
        "1e-07 1.0 None True",
    );
}

#[test]
fn numbers_keep_the_type_they_are_written_in() {
    let v: Json = serde_json::from_str("[1e3, 1000, -0, -0.0, 18446744073709551616, 1E400]").unwrap();
    check("{{ v | tojson }}", v, "[1000.0, 1000, 0, -0.0, 18446744073709551616, Infinity]");
}

#[test]
fn keys_keep_their_order() {
    check(
        "{{ v | tojson }}{% for k in v %}{{ k }}{% endfor %}",
        json!({"b": 1, "a": 2}),
        "{\"b\": 1, \"a\": 2}ba",
    );
}

#[test]
fn blocks_are_trimmed_and_nothing_is_escaped() {
    check("  {% if true %}\n  {{ v }}\n  {% endif %}\nend\n", json!("<&>"), "  <&>\nend");
}

/// Printed by Jinja2 3.1.6.
#[test]
fn every_kind_of_line_end_is_a_line_feed() {
    for (source, want) in [
        ("a\r\nb\rc", "a\nb\nc"),
        ("{{ 'x\r\ny' }}", "x\ny"),
        ("{{ 'x\\r\\ny' }}", "x\r\ny"),
        ("{% if true %}\r\nz\r{% endif %}\r\n", "z\n"),
        ("{# x #}\r\nq\r\n", "q"),
        ("a\r", "a"),
        ("a\n\r\n", "a\n"),
    ] {
        check(source, json!(0), want);
    }
    check("{{ v }}", json!("a\r\nb\rc"), "a\r\nb\rc");
}

#[test]
fn loop_controls_namespaces_and_python_methods_work() {
    check(
        "{% set ns = namespace(n=0) %}{% for x in v %}{% if x == 'c' %}{% break %}{% endif %}{% set ns.n = ns.n + 1 %}{{ \
         x.upper() }}{% endfor %}{{ ns.n }}{{ ' a b '.strip().split(' ') | length }}{{ 'x=1'.startswith('x') }}",
        json!(["a", "b", "c"]),
        "AB22True",
    );
    check("{{ v is sequence }}{{ 'x' is sequence }}{{ 1 is sequence }}", json!({}), "TrueTrueFalse");
}

#[test]
fn generation_tag_prints_its_body() {
    check("{% generation %}{{ v }}{% endgeneration %}", json!("x"), "x");
}

#[test]
fn date_is_the_injected_clocks() {
    check(
        "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S') }}",
        json!(0),
        "15 Jan 2026 2026-01-15 12:34:56",
    );
}

#[test]
fn exception_raised_by_the_template_is_the_engines_refusal() {
    let error = render("{{ raise_exception('no: ' + v) }}", json!("secret")).unwrap_err();
    assert_eq!(error.reason(), "bad_prompt");
    assert!(!error.to_string().contains("secret"), "no prompt text in {error}");
    let inside =
        "{% macro m() %}{{ raise_exception('x') }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}";
    assert_eq!(render(inside, json!(0)).unwrap_err().reason(), "bad_prompt");
}

#[test]
fn work_and_depth_of_a_rendering_are_bounded() {
    for source in [
        "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
        "{% macro again(n) %}{{ again(n + 1) }}{% endmacro %}{{ again(0) }}",
        "{{ '{:1000000000}'.format('x') }}",
        "{{ '{:.1000000000f}'.format(1.5) }}",
        "{{ '%1000000000s' | format('x') }}",
        "{% set ns = namespace(s='x') %}{% for a in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    ] {
        assert_eq!(render(source, json!(0)).unwrap_err().reason(), "not_renderable", "{source}");
    }
}

/// What these print is not of the size of what they are given, and is not made before it is refused.
#[test]
fn printed_values_are_bounded_while_they_are_written() {
    // As a schema that a client nests, with the indentation of the templates of Llama 3.1.
    let mut deep = json!(vec![1; 40_000]);
    for _ in 0..120 {
        deep = json!([deep]);
    }
    let doubled =
        "{% set ns = namespace(s=[1]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}";
    let too_much = PromptError::not_renderable("rendering exceeded its budget of work");
    assert_eq!(render("{{ v | tojson(indent=4) }}", deep), Err(too_much.clone()));
    for print in ["{{ ns.s | tojson }}", "{{ ns.s }}"] {
        assert_eq!(render(&format!("{doubled}{print}"), json!(0)), Err(too_much.clone()), "{print}");
    }
}

#[test]
fn template_that_does_not_compile_names_line_and_fault() {
    let clock: Arc<dyn Clock> = Arc::new(FixedClock(date(2026, 1, 15).at(0, 0, 0, 0)));
    let compile =
        |source: &str| ChatTemplate::compile(source, ContentDetection::Messages, Arc::clone(&clock)).err();
    let error = compile("a\n{% if x %}").unwrap().to_string();
    assert!(error.starts_with("line 2: syntax error"), "{error}");
    let error = compile(&" ".repeat(MAX_TEMPLATE_BYTES + 1)).unwrap().to_string();
    assert!(error.contains("limit of 1048576"), "{error}");
}

#[test]
fn content_format_follows_the_loops_of_the_template() {
    use ContentDetection::{ContentVariable, MacroParameters, Messages};
    const ALL: [ContentDetection; 3] = [Messages, ContentVariable, MacroParameters];
    for (source, parts_in) in [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", &[] as &[_]),
        ("{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}", &ALL),
        ("{% for m in messages %}{% for p in m['content'] | list %}{% endfor %}{% endfor %}", &ALL),
        (
            "{% set rest = messages[1:] %}{% for m in rest %}{% for p in m.content %}{% endfor %}{% endfor %}",
            &ALL,
        ),
        ("{% for m in other %}{% for p in m.content %}{% endfor %}{% endfor %}", &[]),
        ("{% for m in messages %}{% for p in m.tool_calls %}{% endfor %}{% endfor %}", &[]),
        (
            "{% for m in messages %}{% set content = m.content %}{% for p in content %}{% endfor %}{% endfor %}",
            &[ContentVariable, MacroParameters],
        ),
        ("{% macro show(content) %}{% for p in content %}{% endfor %}{% endmacro %}", &[ContentVariable]),
        (
            "{% macro show(x, y) %}{% for p in y %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(1, m.content) \
             }}{% endfor %}",
            &[MacroParameters],
        ),
        (
            "{% macro show(x, y) %}{% for p in x %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(1, m.content) \
             }}{% endfor %}",
            &[],
        ),
        (
            "{% macro show(x, y) %}{% for p in y %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(1, \
             y=m.content) }}{% endfor %}",
            &[MacroParameters],
        ),
    ] {
        for detection in ALL {
            let clock = Arc::new(FixedClock(date(2026, 1, 15).at(0, 0, 0, 0)));
            let template = ChatTemplate::compile(source, detection, clock).unwrap();
            let wants_parts = template.content_format() == ContentFormat::Parts;
            assert_eq!(wants_parts, parts_in.contains(&detection), "{detection:?}: {source}");
        }
    }
}

/// JSON of every shape, with the numbers in the notation that Python would print.
fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(|number| {
            let mut text = String::new();
            python_number::write_float(&mut text, number, &python_number::IN_JSON).unwrap();
            serde_json::from_str(&text).unwrap()
        }),
        any::<String>().prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn json_that_is_written_reads_back_as_itself(v in any_json()) {
        for source in ["{{ v | tojson }}", "{{ v | tojson(ensure_ascii=true) }}", "{{ v | tojson(indent=3) }}"] {
            let text = render(source, v.clone()).unwrap();
            let back: Json = serde_json::from_str(&text).unwrap();
            // The order of keys counts too, which equality of maps ignores.
            prop_assert_eq!(back.to_string(), v.to_string(), "{}", source);
        }
        prop_assert!(render("{{ v | tojson(ensure_ascii=true) }}", v).unwrap().is_ascii());
    }
}
