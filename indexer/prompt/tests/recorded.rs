//! Our text and ids against recorded ones: golden data of the reference implementation, and requests served by real
//! engines of three releases.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/captures.rs"]
mod captures;
#[path = "support/conversions.rs"]
mod conversions;
#[path = "support/golden.rs"]
mod golden;
#[path = "support/qwen3.rs"]
mod qwen3;
#[path = "support/requests.rs"]
mod requests;

use std::path::Path;

use qwen3::{QWEN3, unpack};
use warmpath_prompt::{EncoderChoice, EncoderKind, ModelFiles, ModelPrompt};

fn fixture(name: &str) -> String {
    unpack(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name))
}

#[test]
fn golden_conversations_and_texts_are_equal_with_every_encoder() {
    let lines = fixture("golden/qwen3.jsonl.gz");
    // The self-check refuses the third for this model.
    for encoder in [EncoderKind::Fastokens, EncoderKind::Reference] {
        let files = ModelFiles { encoder: Some(encoder), ..ModelFiles::in_dir(&*QWEN3) };
        let model = ModelPrompt::load(&golden::at_golden_time(files, &lines)).unwrap();
        assert_eq!(model.encoder().kind, encoder);
        let report = golden::compare(&model, &lines);
        assert_eq!(report.faults, [""; 0], "{encoder:?}");
        assert_eq!((report.chats, report.chats_equal), (67, 67), "{encoder:?}");
        assert_eq!((report.texts, report.texts_equal), (278, 278), "{encoder:?}");
        assert_eq!(report.refusals, 0, "{encoder:?}");
    }
}

#[test]
fn fastest_encoder_is_chosen() {
    let model = ModelPrompt::load(&ModelFiles::in_dir(&*QWEN3)).unwrap();
    assert_eq!(*model.encoder(), EncoderChoice { kind: EncoderKind::Fastokens, refused: vec![] });
}

/// Requests recorded from the release `recorded`, predicted with the rules of `assumed`. Returns those that differ.
/// `stored`: prompts of which only blocks and number are known. `refused`: requests that the engine refused.
fn differing(recorded: &str, assumed: &str, stored: usize, refused: &[&str]) -> Vec<String> {
    let mut files = ModelFiles::in_dir(&*QWEN3);
    files.engine_version = assumed.parse().unwrap();
    files.trust_request_template = true;
    let model = ModelPrompt::load(&files).unwrap();
    let report = captures::compare(&model, &fixture(&format!("captures/vllm-{recorded}-qwen3.jsonl.gz")));
    assert_eq!(report.refused, refused);
    assert_eq!(report.requests, 58);
    // One request has three prompts.
    assert_eq!(report.prompts + report.stored + refused.len(), 60);
    assert_eq!(report.stored, stored);
    assert_eq!(report.equal + report.stored_equal + report.faults.len() + refused.len(), 60);
    report.faults.into_iter().map(|(id, _)| id).collect()
}

// No exceptions: every prompt that was recorded is reproduced. Of responses and messages older releases told their number
// of tokens and their cache blocks only.

#[test]
fn ids_of_engine_0_16_are_equal() {
    assert_eq!(differing("0.16.0", "0.16.0", 3, &["messages-tools"]), [""; 0]);
}

#[test]
fn ids_of_engine_0_23_are_equal() {
    assert_eq!(differing("0.23.0", "0.23.0", 4, &[]), [""; 0]);
}

#[test]
fn ids_of_engine_0_32_are_equal() {
    assert_eq!(differing("0.32.0", "0.32.0", 0, &[]), [""; 0]);
}

#[test]
fn rules_of_another_release_give_other_ids() {
    let differing = differing("0.16.0", "0.32.0", 3, &["messages-tools"]);
    assert_eq!(differing, ["chat-tools-extra-fields", "chat-developer"]);
}

/// One check per release, so that a failure names it. `want` counts texts, refusals, requests that only we render, and
/// those that only the engine does.
fn check_requests(version: &str, want: (usize, usize, usize, usize)) {
    let mut files = ModelFiles::in_dir(&*QWEN3);
    files.engine_version = version.parse().unwrap();
    files.trust_request_template = true;
    // Texts are compared, not ids: nothing is encoded.
    files.encoder = Some(EncoderKind::Reference);
    let model = ModelPrompt::load(&files).unwrap();
    let report = requests::compare(&model, &fixture(&format!("requests/vllm-{version}.jsonl.gz")));
    assert_eq!(report.faults, [""; 0], "release {version}");
    let counts = (report.texts, report.refusals, report.lenient, report.unsupported);
    assert_eq!(counts, want, "release {version}");
}

#[test]
fn requests_become_the_text_that_engines_make_of_them() {
    check_requests("0.16", (1332, 465, 59, 0));
    check_requests("0.20", (1347, 457, 52, 0));
    check_requests("0.21", (1363, 441, 52, 0));
    check_requests("0.23", (1420, 380, 56, 0));
    check_requests("0.26", (1420, 380, 56, 0));
    check_requests("0.28", (1420, 380, 56, 0));
    check_requests("0.32", (1428, 372, 56, 0));
}

#[test]
fn developer_messages_with_tools_become_the_text_that_engines_make_of_them() {
    check_requests("0.16-developer", (100, 4, 0, 24));
    check_requests("0.23-developer", (100, 8, 0, 20));
    check_requests("0.32-developer", (100, 8, 0, 20));
}

/// `want` counts texts, refusals, requests that depend on what is not known here, and requests that only we render.
fn check_conversions(version: &str, want: (usize, usize, usize, usize)) {
    let report = conversions::compare(version, &fixture(&format!("conversions/vllm-{version}.jsonl.gz")));
    assert_eq!(report.faults, [""; 0], "release {version}");
    let counts = (report.texts, report.refusals, report.unsupported, report.lenient.len());
    assert_eq!(counts, want, "release {version}: {:#?}", report.lenient);
}

#[test]
fn responses_and_messages_become_the_text_that_engines_make_of_them() {
    check_conversions("0.16", (996, 763, 171, 40));
    check_conversions("0.18", (1151, 608, 171, 40));
    check_conversions("0.20", (1116, 648, 166, 40));
    check_conversions("0.22", (1181, 595, 170, 24));
    check_conversions("0.23", (1346, 429, 171, 24));
    check_conversions("0.25", (1355, 429, 171, 15));
    check_conversions("0.28", (1526, 429, 0, 15));
    check_conversions("0.32", (1536, 419, 0, 15));
}
