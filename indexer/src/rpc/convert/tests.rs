use warmpath_core::rank::{self, CostWeights};
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

/// Whoever has an answer can work out each cost of the cost rule from the terms beside it, and the configured prices.
#[test]
fn the_terms_of_an_answer_sum_up_to_its_cost() {
    let weights = CostWeights { lambda: 1.5, mu: 3.0, memory: 2.0, behind: 0.25, recent: 0.5, agree: 8.0 };
    let candidate = |cached_tokens, away_tokens| rank::Candidate {
        cached_tokens,
        queued_tokens: 700,
        waiting_sequences: 2,
        active_sequences: 5,
        kv_usage: 0.9,
        room_tokens: Some(100),
        pressure: 0.75,
        slowness: 1.25,
        capacity: 2.0,
        ramp: 0.5,
        recent_tokens: 300.0,
        away_tokens,
        penalty: 64.0,
        last_cold: 0,
    };
    let demand = rank::Demand { prompt_tokens: 1000, further_tokens: 0, output_tokens: 50, tie_tokens: 16 };
    let candidates = [candidate(320, 0.0), candidate(64, 340.0), candidate(0, 680.0)];
    let mut turn = 0;
    let mut random = || {
        turn += 1;
        turn
    };
    let ranked = rank::rank(Policy::Cost(weights), demand, &candidates, 0, &mut random);
    assert_eq!(ranked.len(), 3);
    for ranked in ranked {
        let pick = Pick {
            endpoint: "10.0.0.1:80".into(),
            rank: None,
            candidate: candidates[ranked.index].clone(),
            ranked,
        };
        let wire::Candidate { uncached_tokens, terms, .. } = super::candidate(pick);
        let terms = terms.unwrap();
        let own = f64::from(uncached_tokens);
        let queued = terms.queued_tokens as f64 / terms.ramp;
        let behind = weights.behind * f64::from(terms.waiting_sequences) * own;
        let sum = terms.slowness * (queued + own + behind)
            + weights.lambda * terms.pressure * f64::from(terms.duplicated_tokens)
            + weights.mu * f64::from(terms.active_sequences) / (terms.capacity * terms.ramp)
            + weights.memory * terms.missing_tokens as f64
            + weights.recent * terms.recent_tokens
            + weights.agree * terms.away_tokens
            + terms.penalty;
        assert!((sum - terms.cost).abs() < 1e-6, "{sum} {terms:?}");
    }
}
