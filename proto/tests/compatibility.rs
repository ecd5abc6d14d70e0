//! Releases beside each other: what the last one sent is read as it was meant, and it reads what this one sends.
//!
//! `released/` holds the descriptors of the last release's contract and messages that it encoded. They are never
//! rewritten; a release adds its own, by `WARMPATH_RELEASED=NAME cargo test -p warmpath-proto --test compatibility`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet};
use warmpath_proto::v1;

fn released() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/released")
}

fn contract() -> FileDescriptorSet {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = ["warmpath/v1/score.proto", "warmpath/v1/peer.proto", "warmpath/v1/mirror.proto"];
    let mut contract = protox::compile(names, [root]).unwrap();
    contract.file.iter_mut().for_each(|file| file.source_code_info = None);
    contract
}

/// One of each message that crosses a process, with all that the first release has in it.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let ids = |ids: &[u32]| v1::TokenIds { ids: ids.to_vec() };
    let score = v1::ScoreRequest {
        model: "m".into(),
        prompt: Some(v1::score_request::Prompt::Chat(v1::ChatPrompt {
            messages_json: b"[1]".to_vec(),
            tools_json: Some(b"[2]".to_vec()),
            documents_json: Some(b"[3]".to_vec()),
            template_kwargs_json: Some(b"{}".to_vec()),
            chat_template: Some("t".into()),
            add_generation_prompt: Some(false),
            continue_final_message: Some(true),
            reasoning_effort: Some("low".into()),
            tool_choice_json: Some(b"4".to_vec()),
            has_media: true,
            prompt_token_ids: Some(ids(&[1, 300])),
        })),
        cache_salt: "s".into(),
        max_output_tokens: 7,
        add_special_tokens: Some(false),
        truncate_prompt_tokens: Some(-1),
        body_bytes: 1000,
        sequences_per_prompt: 2,
        endpoints_version: 9,
        policy: "cost".into(),
        deadline_us: 40_000,
        not_scorable_reason: "media".into(),
        path: "/v1/completions".into(),
        truncation_side: Some("left".into()),
        previous_response_key: 5,
        group_key: 6,
    };
    let prompts = v1::ScoreRequest {
        prompt: Some(v1::score_request::Prompt::Tokens(v1::TokenPrompts {
            prompts: vec![ids(&[1]), ids(&[2, 3])],
        })),
        ..v1::ScoreRequest::default()
    };
    let texts = v1::ScoreRequest {
        prompt: Some(v1::score_request::Prompt::Texts(v1::TextPrompts { texts: vec!["a".into()] })),
        ..v1::ScoreRequest::default()
    };
    let answer = v1::ScoreResponse {
        decision_id: 1 << 32 | 2,
        candidates: vec![v1::Candidate {
            endpoint: "10.0.0.1:80".into(),
            rank: Some(1),
            cached_tokens: 16,
            uncached_tokens: 3,
            terms: Some(v1::CostTerms {
                cost: 1.5,
                queued_tokens: 1,
                active_sequences: 2,
                duplicated_tokens: 3,
                pressure: 0.5,
                slowness: 1.25,
                penalty: 4.0,
                capacity: 2.0,
                ramp: 0.1,
                missing_tokens: 5,
                recent_tokens: 6.0,
                ..Default::default()
            }),
        }],
        outcome: v1::Outcome::LoadOnly.into(),
        reason: "no_events".into(),
        prompt_tokens: 19,
        reachable_tokens: 16,
        policy: "cost".into(),
        endpoints: Some(v1::EndpointSet {
            version: 3,
            endpoints: vec![v1::EndpointInfo {
                endpoint: "10.0.0.1:80".into(),
                ranks: 1,
                active_sequences: 2,
            }],
        }),
    };
    let event = |decision_id, what| v1::Event { decision_id, elapsed_us: 5, what: Some(what) };
    let report = v1::ReportRequest {
        events: vec![
            event(1, v1::event::What::FirstByte(v1::FirstByte { endpoint: "e".into(), http_status: 200 })),
            event(2, v1::event::What::Alive(v1::Alive {})),
            event(
                3,
                v1::event::What::End(v1::End {
                    endpoint: "e".into(),
                    http_status: 200,
                    cause: v1::EndCause::Complete.into(),
                    cached_tokens: Some(0),
                    prompt_tokens: Some(1),
                    completion_tokens: Some(2),
                    attempts: 1,
                    fallback_reason: "deadline".into(),
                    response_key: 4,
                }),
            ),
        ],
    };
    vec![
        ("ScoreRequest chat", score.encode_to_vec()),
        ("ScoreRequest tokens", prompts.encode_to_vec()),
        ("ScoreRequest texts", texts.encode_to_vec()),
        ("ScoreResponse", answer.encode_to_vec()),
        ("ReportRequest", report.encode_to_vec()),
        ("ReportResponse", v1::ReportResponse { unknown_decisions: 1 }.encode_to_vec()),
        ("FollowRequest", follow().encode_to_vec()),
        ("LedgerChanges", changes().encode_to_vec()),
    ]
}

fn follow() -> v1::FollowRequest {
    v1::FollowRequest { follower_id: 7, ..Default::default() }
}

fn changes() -> v1::LedgerChanges {
    use v1::ledger_change::What;
    let change = |decision_id, what| v1::LedgerChange { decision_id, what: Some(what) };
    v1::LedgerChanges {
        indexer_id: 7,
        snapshot: true,
        changes: vec![
            change(
                1,
                What::Reserved(v1::Reserved {
                    endpoint: "10.0.0.1:80".into(),
                    rank: 1,
                    queued_tokens: 100,
                    sequences: 2,
                    lease_ms: 30_000,
                    ..Default::default()
                }),
            ),
            change(1, What::Started(v1::Started {})),
            change(1, What::Renewed(v1::Renewed {})),
            change(1, What::Released(v1::Released {})),
            change(0, What::Answered(v1::Answered { response_key: 5, endpoint: "10.0.0.1:80".into() })),
        ],
        ..Default::default()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What releases wrote, by release.
fn golden() -> Vec<(PathBuf, String)> {
    let files = released().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "hex"));
    files.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// Bytes of earlier releases are what this one writes for the same message: so it reads them as they were meant.
#[test]
fn messages_of_the_last_release_are_read_as_they_were_meant() {
    if let Some(name) = option_env!("WARMPATH_RELEASED") {
        let lines = samples().into_iter().map(|(name, bytes)| format!("{name}: {}\n", hex(&bytes)));
        std::fs::write(released().join(format!("{name}.hex")), lines.collect::<String>()).unwrap();
        std::fs::write(released().join(format!("{name}.binpb")), contract().encode_to_vec()).unwrap();
    }
    let golden = golden();
    assert!(!golden.is_empty());
    let now: BTreeMap<_, _> = samples().into_iter().collect();
    for (path, text) in golden {
        for line in text.lines() {
            let (name, bytes) = line.split_once(": ").unwrap();
            assert_eq!(hex(&now[name]), bytes, "{name} of {}", path.display());
        }
    }
}

/// Fields, enum values and methods of earlier releases are still there, with their numbers, types and names.
#[test]
fn the_contract_only_grows() {
    let mut now = BTreeMap::new();
    facts(&contract(), &mut now);
    let files = released().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut seen = 0;
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "binpb")) {
        let mut then = BTreeMap::new();
        facts(&FileDescriptorSet::decode(std::fs::read(&path).unwrap().as_slice()).unwrap(), &mut then);
        for (name, fact) in then {
            assert_eq!(now.get(&name), Some(&fact), "{name} of {}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 150, "{seen} facts");
}

/// All that a reader of another release depends on, by name.
fn facts(files: &FileDescriptorSet, out: &mut BTreeMap<String, String>) {
    for file in &files.file {
        for message in &file.message_type {
            of_message(message, out);
        }
        for kind in &file.enum_type {
            for value in &kind.value {
                out.insert(format!("{}.{}", kind.name(), value.name()), value.number().to_string());
            }
        }
        for service in &file.service {
            for method in &service.method {
                let fact = format!("{method:?}");
                out.insert(format!("{}.{}", service.name(), method.name()), fact);
            }
        }
    }
}

fn of_message(message: &DescriptorProto, out: &mut BTreeMap<String, String>) {
    for field in &message.field {
        // By number: a name is nothing on the wire, but a number under another name is another field.
        let is_one_of_several = field.oneof_index.is_some() && !field.proto3_optional();
        let fact = format!(
            "{} {:?} {:?} {} {is_one_of_several} {:?}",
            field.name(),
            field.r#type(),
            field.label(),
            field.type_name(),
            field.proto3_optional
        );
        out.insert(format!("{}#{}", message.name(), field.number()), fact);
    }
    message.nested_type.iter().for_each(|nested| of_message(nested, out));
}

/// A message as the first release knew it, written by hand.
#[derive(Clone, PartialEq, Message)]
struct FirstChanges {
    #[prost(fixed64, tag = "1")]
    indexer_id: u64,
    #[prost(bool, tag = "2")]
    snapshot: bool,
    #[prost(message, repeated, tag = "3")]
    changes: Vec<FirstChange>,
}

#[derive(Clone, PartialEq, Message)]
struct FirstChange {
    #[prost(fixed64, tag = "1")]
    decision_id: u64,
    #[prost(oneof = "FirstWhat", tags = "2, 3, 4, 5, 6")]
    what: Option<FirstWhat>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum FirstWhat {
    #[prost(message, tag = "2")]
    Reserved(FirstReserved),
    #[prost(message, tag = "3")]
    Started(v1::Started),
    #[prost(message, tag = "4")]
    Released(v1::Released),
    #[prost(message, tag = "5")]
    Renewed(v1::Renewed),
    #[prost(message, tag = "6")]
    Answered(v1::Answered),
}

#[derive(Clone, PartialEq, Message)]
struct FirstReserved {
    #[prost(string, tag = "1")]
    endpoint: String,
    #[prost(uint64, tag = "3")]
    queued_tokens: u64,
}

/// What is new is passed over by an older reader, which reads all the rest.
#[test]
fn an_older_reader_passes_over_what_it_does_not_know() {
    use v1::ledger_change::What;
    let mut told = changes();
    told.secret_check = u64::MAX;
    if let Some(What::Reserved(reserved)) = &mut told.changes[0].what {
        reserved.expected = vec![v1::ExpectedBlocks { block_size: 16, ahead: 0, keys: vec![1, 2] }];
        reserved.expected_ms = 15_000;
    }
    let seen = v1::Sighting {
        endpoint: "10.0.0.1:80".into(),
        what: Some(v1::sighting::What::Attempt(v1::Attempt { has_failed: true })),
    };
    told.changes.insert(1, v1::LedgerChange { decision_id: 0, what: Some(What::Sighting(seen)) });
    told.changes
        .insert(2, v1::LedgerChange { decision_id: 1, what: Some(What::Reported(v1::Event::default())) });
    let read = FirstChanges::decode(told.encode_to_vec().as_slice()).unwrap();
    assert_eq!((read.indexer_id, read.snapshot, read.changes.len()), (7, true, 7));
    let reserved = FirstReserved { endpoint: "10.0.0.1:80".into(), queued_tokens: 100 };
    assert_eq!(read.changes[0].what, Some(FirstWhat::Reserved(reserved)));
    assert_eq!((&read.changes[1].what, &read.changes[2].what), (&None, &None));
    assert!(matches!(read.changes[6].what, Some(FirstWhat::Answered(_))));
}

/// The terms of a candidate as the first release knew them, written by hand.
#[derive(Clone, PartialEq, Message)]
struct FirstTerms {
    #[prost(double, tag = "1")]
    cost: f64,
    #[prost(double, tag = "11")]
    recent_tokens: f64,
}

#[test]
fn an_older_reader_of_terms_passes_over_the_later_ones() {
    let terms = v1::CostTerms {
        cost: 1.5,
        recent_tokens: 6.0,
        waiting_sequences: 7,
        away_tokens: 0.5,
        ..Default::default()
    };
    let read = FirstTerms::decode(terms.encode_to_vec().as_slice()).unwrap();
    assert_eq!(read, FirstTerms { cost: 1.5, recent_tokens: 6.0 });
    let written = v1::CostTerms::decode(read.encode_to_vec().as_slice()).unwrap();
    assert_eq!((written.cost, written.waiting_sequences, written.away_tokens), (1.5, 0, 0.0));
}

/// What a later release adds, this one passes over.
#[test]
fn fields_of_a_later_release_are_passed_over() {
    #[derive(Clone, PartialEq, Message)]
    struct Later {
        #[prost(uint64, tag = "2000")]
        number: u64,
        #[prost(message, optional, tag = "2001")]
        more: Option<v1::End>,
    }
    let later = Later { number: 5, more: Some(v1::End::default()) }.encode_to_vec();
    let with = |bytes: Vec<u8>| [bytes, later.clone()].concat();
    assert_eq!(v1::FollowRequest::decode(with(follow().encode_to_vec()).as_slice()), Ok(follow()));
    assert_eq!(v1::LedgerChanges::decode(with(changes().encode_to_vec()).as_slice()), Ok(changes()));
    let change = v1::LedgerChange::decode(later.as_slice()).unwrap();
    assert_eq!(change, v1::LedgerChange::default(), "a change of a kind that is not known here");
}
