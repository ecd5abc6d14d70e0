//! Comparison with what the engine's own renderer makes of the requests in `tests/fixtures/harmony`.

use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::{Value as Json, json};

use super::pieces::Piece;
use super::*;
use crate::anthropic::{self, MessagesRequest};
use crate::template::FixedClock;

/// The date that the fixtures were made with.
const DATE: (i16, i8, i8) = (2025, 6, 28);

/// How the requests of one release came out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    equal: usize,
    /// Refused by the engine and by us.
    refused: usize,
    /// Answered by the engine, not rendered by us, with a reason that says so.
    not_rendered: usize,
    /// Everything else.
    faults: Vec<String>,
}

fn records(minor: u16) -> Vec<Json> {
    let path = format!("tests/fixtures/harmony/vllm-0.{minor}.jsonl.gz");
    let bytes = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let mut text = String::new();
    GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn harmony(minor: u16, record: &Json) -> Harmony {
    let (year, month, day) = DATE;
    let version = EngineVersion::new(0, minor);
    Harmony {
        rules: HarmonyRules::of(version, &RenderingRules::of(version)).unwrap(),
        exclude_tools_when_none: record["exclude_tools"] == true,
        clock: Arc::new(FixedClock(jiff::civil::date(year, month, day).at(12, 0, 0, 0))),
    }
}

fn render(minor: u16, record: &Json) -> Result<Pieces, PromptError> {
    let harmony = harmony(minor, record);
    let body = &record["body"];
    match record["path"].as_str() {
        Some("/v1/responses") => return harmony.responses(body.to_string().as_bytes()),
        Some("/v1/messages") => return messages(minor, &harmony, body),
        _ => {}
    }
    let bytes = |key: &str| {
        body.get(key).filter(|value| !value.is_null()).map(|value| value.to_string().into_bytes())
    };
    let (messages, tools, choice) = (bytes("messages").unwrap(), bytes("tools"), bytes("tool_choice"));
    harmony.chat(&ChatRequest {
        messages: &messages,
        tools: tools.as_deref(),
        tool_choice: choice.as_deref(),
        reasoning_effort: body["reasoning_effort"].as_str(),
        add_generation_prompt: body["add_generation_prompt"].as_bool(),
        continue_final_message: body["continue_final_message"].as_bool(),
        ..ChatRequest::default()
    })
}

/// With what gpt-oss's own template decides about conversions.
fn messages(minor: u16, harmony: &Harmony, body: &Json) -> Result<Pieces, PromptError> {
    let rules = RenderingRules::of(EngineVersion::new(0, minor)).anthropic;
    let conversion = anthropic::Conversion { merges_inline_system: true, disabled_effort: "low" };
    let members = body.to_string();
    let request = MessagesRequest { members: members.as_bytes(), has_media: false };
    harmony.messages(anthropic::convert(&rules, conversion, &request)?)
}

/// In the fixture's form: ids of special tokens, and the texts between them as one.
fn as_recorded(pieces: &Pieces) -> Vec<Json> {
    let mut out: Vec<Json> = Vec::new();
    for piece in pieces.as_slice() {
        match (piece, out.last_mut()) {
            (Piece::Special(special), _) => {
                let (_, id) = KNOWN_IDS.iter().find(|(token, _)| *token == special.as_str()).unwrap();
                out.push((*id).into());
            }
            (Piece::Text(text), Some(Json::String(before))) => before.push_str(text),
            (Piece::Text(text), _) => out.push(text.as_str().into()),
        }
    }
    out
}

fn tally(minor: u16) -> Tally {
    let mut tally = Tally::default();
    for (line, record) in records(minor).iter().enumerate() {
        let body = &record["body"];
        match (render(minor, record), record.get("pieces").and_then(Json::as_array)) {
            (Ok(ours), Some(theirs)) if as_recorded(&ours) == *theirs => tally.equal += 1,
            (Ok(ours), theirs) => {
                let (ours, theirs) =
                    (as_recorded(&ours), theirs.map_or(&record["error"], |_| &record["pieces"]));
                tally.faults.push(format!("{line}: {body}\nours {ours:?}\ntheirs {theirs}"));
            }
            (Err(_), None) => tally.refused += 1,
            (Err(error), Some(_)) => match error.reason() {
                "unsupported_field" | "not_renderable" => tally.not_rendered += 1,
                _ => tally.faults.push(format!("{line}: {body}\n{error}")),
            },
        }
    }
    tally
}

#[test]
fn prompts_are_the_engines_own_in_0_16() {
    let tally = tally(16);
    assert!(tally.faults.is_empty(), "{}", tally.faults.join("\n"));
    assert_eq!((tally.equal, tally.refused, tally.not_rendered), (331, 158, 70));
}

#[test]
fn prompts_are_the_engines_own_in_0_23() {
    let tally = tally(23);
    assert!(tally.faults.is_empty(), "{}", tally.faults.join("\n"));
    assert_eq!((tally.equal, tally.refused, tally.not_rendered), (450, 80, 29));
}

#[test]
fn prompts_are_the_engines_own_in_0_32() {
    let tally = tally(32);
    assert!(tally.faults.is_empty(), "{}", tally.faults.join("\n"));
    assert_eq!((tally.equal, tally.refused, tally.not_rendered), (463, 71, 25));
}

/// A function's name goes before each of its answers.
#[test]
fn prompt_is_not_made_longer_than_it_may_be() {
    let name = "f".repeat(1 << 20);
    let prompt = |answers: usize| {
        let call = json!({"id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}});
        let answer = json!({"role": "tool", "tool_call_id": "c", "content": ""});
        let mut messages = vec![json!({"role": "assistant", "tool_calls": [call]})];
        messages.extend(vec![answer; answers]);
        render(32, &json!({"body": {"messages": messages}}))
    };
    assert!(prompt(10).is_ok());
    let error = prompt(20_000).unwrap_err();
    assert!(matches!(error, PromptError::TooLarge { what: "prompt", .. }), "{error}");
}
