use warmpath_proto::v1::{ChatPrompt, TextPrompts, TokenIds, TokenPrompts};

use super::*;

fn check(request: ScoreRequest) -> Result<Question, Invalid> {
    question(request, &|name| Policy::by_name(name))
}

fn texts(texts: Vec<String>) -> Option<score_request::Prompt> {
    Some(score_request::Prompt::Texts(TextPrompts { texts }))
}

fn ids(prompts: Vec<Vec<u32>>) -> Option<score_request::Prompt> {
    let prompts = prompts.into_iter().map(|ids| TokenIds { ids }).collect();
    Some(score_request::Prompt::Tokens(TokenPrompts { prompts }))
}

/// The name of the field that a request is refused for.
fn refused(request: ScoreRequest) -> String {
    let message = check(request).unwrap_err().to_string();
    message.split([',', ':']).next().unwrap().to_owned()
}

#[tokio::test]
async fn a_plain_question_is_taken_as_it_is() {
    let request = ScoreRequest {
        model: "m".into(),
        prompt: ids(vec![vec![1, 2], vec![3]]),
        cache_salt: "s".into(),
        sequences_per_prompt: 2,
        policy: "least_load".into(),
        deadline_us: 40_000,
        previous_response_key: 5,
        body_bytes: 7,
        ..ScoreRequest::default()
    };
    let before = Instant::now();
    let question = check(request).unwrap();
    assert_eq!((question.model.as_str(), question.cache_salt.as_deref()), ("m", Some("s")));
    assert_eq!((question.sequences(), question.policy), (4, Some(Policy::LeastLoad)));
    assert_eq!(question.previous_response, ResponseKey::new(5));
    let patience = question.answer_by.unwrap() - before;
    assert!(patience >= Duration::from_millis(30) && patience < Duration::from_millis(40), "{patience:?}");
}

#[test]
fn what_is_not_given_reads_as_the_default() {
    let question = check(ScoreRequest::default()).unwrap();
    assert_eq!((question.cache_salt, question.policy, question.answer_by), (None, None, None));
    assert_eq!((question.sequences_per_prompt, question.previous_response), (1, None));
    assert!(matches!(question.prompt, Prompt::Absent(reason) if reason.name() == "no_prompt"));
}

#[test]
fn every_limit_of_the_contract_refuses_by_the_field() {
    let base = ScoreRequest::default;
    assert_eq!(refused(ScoreRequest { model: "x".repeat(MODEL_BYTES_MAX + 1), ..base() }), "model");
    assert_eq!(
        refused(ScoreRequest { cache_salt: "x".repeat(CACHE_SALT_BYTES_MAX + 1), ..base() }),
        "cache_salt"
    );
    assert_eq!(refused(ScoreRequest { policy: "nonsense".into(), ..base() }), "policy");
    assert_eq!(
        refused(ScoreRequest { sequences_per_prompt: SEQUENCES_MAX + 1, ..base() }),
        "sequences_per_prompt"
    );
    assert_eq!(
        refused(ScoreRequest { prompt: texts(vec![String::new(); PROMPTS_MAX + 1]), ..base() }),
        "texts"
    );
    assert_eq!(refused(ScoreRequest { prompt: texts(Vec::new()), ..base() }), "texts");
    assert_eq!(
        refused(ScoreRequest { prompt: ids(vec![vec![0; TOKEN_IDS_MAX + 1]]), ..base() }),
        "tokens.prompts.ids"
    );
    let chat = ChatPrompt {
        messages_json: b"[]".to_vec(),
        reasoning_effort: Some("x".repeat(SHORT_TEXT_BYTES_MAX + 1)),
        ..ChatPrompt::default()
    };
    let empty = ChatPrompt::default();
    for (chat, field) in [(chat, "chat.reasoning_effort"), (empty, "chat.messages_json")] {
        assert_eq!(
            refused(ScoreRequest { prompt: Some(score_request::Prompt::Chat(chat)), ..base() }),
            field
        );
    }
}

#[test]
fn limits_themselves_are_allowed() {
    check(ScoreRequest {
        model: "x".repeat(MODEL_BYTES_MAX),
        cache_salt: "x".repeat(CACHE_SALT_BYTES_MAX),
        sequences_per_prompt: SEQUENCES_MAX,
        prompt: texts(vec!["a".into(); PROMPTS_MAX]),
        ..ScoreRequest::default()
    })
    .unwrap();
}
