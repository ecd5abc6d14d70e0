//! Agreement with `serde_json`, and what it does not tell.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Takes one value and demands the end.
fn read(text: &str) -> Result<Raw<'_>, Fault> {
    let mut scanner = Scanner::new(text);
    let raw = scanner.value()?;
    scanner.finish()?;
    Ok(raw)
}

/// Walks into every object and array, and makes a value of it again.
fn rebuild(scanner: &mut Scanner<'_>) -> Result<Value, Fault> {
    match scanner.peek() {
        Some(b'{') => {
            let mut map = serde_json::Map::new();
            scanner.object(|s, key| {
                let key = unescape(key).expect("no lone surrogate").into_owned();
                let value = rebuild(s)?;
                map.insert(key, value);
                Ok(())
            })?;
            Ok(Value::Object(map))
        }
        Some(b'[') => {
            let mut list = Vec::new();
            scanner.array(|s, index| {
                assert_eq!(index, list.len());
                list.push(rebuild(s)?);
                Ok(())
            })?;
            Ok(Value::Array(list))
        }
        _ => {
            let raw = scanner.value()?;
            Ok(match raw.as_str() {
                Some(text) => Value::String(text.expect("no lone surrogate").into_owned()),
                None => serde_json::from_str(raw.text).expect("a scalar"),
            })
        }
    }
}

#[test]
fn values_are_slices_without_the_white_space_around_them() {
    for text in ["null", "true", "-0.5e+3", "\"a\\\"b\"", "[ 1 ,[] , {} ]", "{ \"a\" : {\"b\":[1]} }"] {
        let spaced = format!(" \r\n\t{text} \n");
        assert_eq!(read(&spaced).map(|raw| raw.text), Ok(text));
    }
}

#[test]
fn what_is_no_json_is_refused_where_it_stops_fitting() {
    for (text, at) in [
        ("", 0),
        ("nul", 0),
        ("01", 1),
        ("1.", 2),
        ("1e", 2),
        ("-", 1),
        ("+1", 0),
        (".5", 0),
        ("\"a", 2),
        ("\"\u{1}\"", 1),
        ("\"\\x\"", 1),
        ("\"\\u12g4\"", 1),
        ("[1,]", 3),
        ("[1 2]", 3),
        ("{\"a\" 1}", 5),
        ("{\"a\":1,}", 7),
        ("{a:1}", 1),
        ("[}", 1),
        ("{]", 1),
        ("NaN", 0),
        ("1 1", 2),
        ("[1]]", 3),
    ] {
        assert_eq!(read(text), Err(Fault::Syntax { at }), "{text}");
        assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
    }
}

#[test]
fn nesting_is_followed_to_the_limit_and_costs_no_stack() {
    let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let limit = JSON_DEPTH_MAX as usize;
    assert!(read(&deep(limit)).is_ok());
    assert_eq!(read(&deep(limit + 1)), Err(Fault::Depth { at: limit }));
    assert_eq!(read(&"{\"a\":".repeat(1_000_000)), Err(Fault::Depth { at: 5 * limit }));
    // Kinds of brackets are told apart on every level.
    let mixed = "{\"a\":[".repeat(limit / 2) + &"]}".repeat(limit / 2);
    assert!(read(&mixed).is_ok());
    assert!(read(&mixed.replacen("]}", "}]", 1)).is_err());
}

#[test]
fn halves_of_surrogate_pairs_are_noticed_wherever_they_are() {
    for (text, lone) in [
        (r#""\ud83d\ude00""#, false),
        (r#""\uD83D\uDE00\u00e9""#, false),
        (r#""\ud83d""#, true),
        (r#""\ude00""#, true),
        (r#""\ud83d\ud83d\ude00""#, true),
        (r#""\ud83dx\ude00""#, true),
        (r#""\ud83d\u0041""#, true),
        (r#""\ud83d\ud83d""#, true),
        (r#"{"\ud83d":1}"#, true),
        (r#"[["a",{"b":"\ude00"}]]"#, true),
        (r#""\\ud83d""#, false),
    ] {
        let raw = read(text).expect("JSON");
        assert_eq!(raw.lone_surrogate, lone, "{text}");
        if let Some(inner) = raw.as_str() {
            assert_eq!(inner.is_err(), lone, "{text}");
        }
    }
    // It belongs to the value that holds it, and not to its neighbours.
    let mut seen = Vec::new();
    Scanner::new(r#"["a","\ud83d","b"]"#)
        .array(|s, _| {
            seen.push(s.value()?.lone_surrogate);
            Ok(())
        })
        .expect("JSON");
    assert_eq!(seen, [false, true, false]);
}

#[test]
fn strings_without_escapes_are_borrowed() {
    assert!(matches!(read("\"plain ü\"").map(|r| r.as_str()), Ok(Some(Ok(Cow::Borrowed("plain ü"))))));
    assert!(matches!(read(r#""\n""#).map(|r| r.as_str()), Ok(Some(Ok(Cow::Owned(_))))));
    assert!(matches!(read("12").map(|r| r.as_str()), Ok(None)));
}

#[test]
fn a_run_of_plain_bytes_ends_at_the_first_special_one() {
    for special in [b'"', b'\\', 0, 0x1f] {
        for at in 0..40 {
            let mut bytes = vec![0xc3u8; 40];
            bytes.extend_from_slice(b"\x20\x21\x23\x5b\x5d\x7f\x80\xff\x22");
            bytes[at] = special;
            assert_eq!(plain_run(&bytes, 0), at);
            assert_eq!(plain_run(&bytes, at + 1), 48, "from {at}");
        }
    }
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9f64).prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("\\PC{0,3}", inner), 0..6)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// A text made of what JSON is made of, valid or not, with equal keys and odd escapes.
fn nearly_json() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        " ",
        "\"a\"",
        "\"\\u0061\"",
        "\"b\"",
        "\"\"",
        "1",
        "-1.5e3",
        "0",
        "01",
        "true",
        "null",
        "\"\\n\\\\\"",
        "\"\\ud83d\\ude00\"",
        "\"",
        "\\",
        "é",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// Members with few names, so that many are equal; some names are escaped.
fn members() -> impl Strategy<Value = Vec<(String, Value)>> {
    let key =
        prop::sample::select(vec![r"a", r"\u0061", r"b", r"\u0062", r"a\/", r"a/"]).prop_map(str::to_owned);
    prop::collection::vec((key, json()), 0..10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        prop_assert_eq!(read(&text).is_ok(), serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok());
    }

    #[test]
    fn near_misses_are_refused_alike(text in nearly_json()) {
        let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text);
        let ours = read(&text);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{}", text);
    }

    #[test]
    fn every_value_is_rebuilt_as_it_was(value in json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.expect("JSON");
        prop_assert_eq!(rebuild(&mut Scanner::new(&text)).expect("JSON"), value);
    }

    #[test]
    fn the_last_of_equal_keys_wins_as_in_serde_json(members in members()) {
        let body = members.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect::<Vec<_>>().join(",");
        let text = format!("{{{body}}}");
        let theirs: Value = serde_json::from_str(&text).expect("JSON");
        prop_assert_eq!(rebuild(&mut Scanner::new(&text)).expect("JSON"), theirs);
    }

    #[test]
    fn cut_texts_are_refused(value in json(), cut in any::<prop::sample::Index>()) {
        let text = serde_json::to_string(&serde_json::json!([value])).expect("JSON");
        let end = cut.index(text.len());
        if let Some(part) = text.get(..end) {
            prop_assert!(read(part).is_err(), "{}", part);
        }
    }
}
