//! Responses that engines keep: asked about, gone on from, and told of.

use super::*;
use crate::limits::{ANSWER_HEAD_BYTES, USAGE_TAIL_BYTES};
use crate::request::Prompt;

fn asked(effects: &[Effect<'_>]) -> (Option<ResponseKey>, Option<Reason>, String) {
    let [Effect::Ask(ask)] = effects else { panic!("{effects:?}") };
    let reason = match &ask.request.prompt {
        Prompt::Unscored(reason) => Some(*reason),
        _ => None,
    };
    (ask.request.previous_response, reason, ask.request.path.name().to_owned())
}

/// A session in which the indexer is asked about this `/v1/responses` body.
fn asking(body: &'static str, worker: &mut Worker) -> Session {
    let mut session = Session::new(START_US);
    let head = head(Ok(Target::Prompt(KnownPath::Responses)));
    for input in [
        Input::Headers(head),
        Input::BodyChunk { bytes: body.len(), ends: true },
        Input::Body(body.as_bytes()),
        Input::Asked(7),
    ] {
        session.step(input, worker, START_US);
    }
    assert_eq!(session.state(), StateName::Asking);
    session
}

/// Lets the answer pass in chunks of this size, and gives back what was told at the end.
fn told(mut session: Session, worker: &mut Worker, answered: &str, chunk_bytes: usize) -> End {
    session.step(answer(FIRST), worker, START_US);
    for chunk in answered.as_bytes().chunks(chunk_bytes) {
        let window = session.window().expect("it is read");
        let head = chunk.get(..window.head).unwrap_or(chunk);
        let tail = chunk.get(chunk.len().saturating_sub(window.tail)..).expect("the end");
        session.step(Input::AnswerChunk { head, tail, ends: false }, worker, START_US);
    }
    session.step(Input::AnswerTrailers, worker, START_US);
    session.step(Input::Log(Ending::default()), worker, START_US);
    match events(worker).pop().map(|event| event.what) {
        Some(What::End(end)) => end,
        other => panic!("{other:?}"),
    }
}

const ANSWER: &str = r#"{"id":"resp_2","object":"response","output":[{"id":"msg_1","content":[]}],
    "usage":{"input_tokens":80,"output_tokens":3,"input_tokens_details":{"cached_tokens":64}}}"#;

#[test]
fn a_stored_response_is_asked_about_at_once_and_its_usage_is_an_earlier_requests() {
    for ends in [true, false] {
        let mut worker = worker();
        let mut session = Session::new(START_US);
        let head = RequestHead { ends, ..stored() };
        let effects = session.step(Input::Headers(head), &mut worker, START_US);
        let about = (Some(response("resp_1")), Some(Reason::NoPrefill), "/v1/responses".to_owned());
        assert_eq!(asked(&effects), about);
        assert_eq!(letters(&session.step(Input::Asked(7), &mut worker, START_US)), "H");
        // A body is held with the headers, and not read.
        let chunk = Input::BodyChunk { bytes: 2, ends: true };
        assert_eq!(letters(&session.step(chunk, &mut worker, START_US)), "H");
        let reply = Reply { load_only: true, reason: Some(Reason::PreviousResponse), ..reply(5) };
        let effects = session.step(Input::Reply(reply), &mut worker, START_US + 9);
        assert_eq!(letters(&effects), "RSU");
        assert_eq!(settled(&effects), (Outcome::LoadOnly, Some(Reason::PreviousResponse)));
        let end = told(session, &mut worker, ANSWER, 1000);
        assert_eq!((end.usage, end.response), (Usage::default(), None));
    }
}

#[test]
fn without_an_indexer_a_stored_response_is_hashed_like_what_goes_on_from_it() {
    let mut worker = worker();
    (0..3).for_each(|_| worker.circuit.failed(START_US));
    let mut session = Session::new(START_US);
    let effects = session.step(Input::Headers(stored()), &mut worker, START_US);
    // No resume: the request was not held yet.
    assert_eq!(letters(&effects), "RS");
    assert_eq!(settled(&effects), (Outcome::Fallback, Some(Reason::CircuitOpen)));
    let Some(Effect::Route(route)) = effects.first() else { panic!("{effects:?}") };

    worker.ring.release(FIRST);
    worker.ring.release(SECOND);
    let mut next = Session::new(START_US);
    let body = br#"{"model":"m","input":"x","previous_response_id":"resp_1"}"#;
    next.step(Input::Headers(head(Ok(Target::Prompt(KnownPath::Responses)))), &mut worker, START_US);
    let effects = next.step(Input::Body(body), &mut worker, START_US);
    assert_eq!(effects.first(), Some(&Effect::Route(route.clone())));
}

#[test]
fn a_request_that_goes_on_from_a_response_names_it() {
    let mut worker = worker();
    let mut session = Session::new(START_US);
    session.step(Input::Headers(head(Ok(Target::Prompt(KnownPath::Responses)))), &mut worker, START_US);
    let body = br#"{"model":"m","input":"x","previous_response_id":"resp_1"}"#;
    let effects = session.step(Input::Body(body), &mut worker, START_US);
    assert_eq!(asked(&effects), (Some(response("resp_1")), None, "/v1/responses".to_owned()));
}

#[test]
fn the_id_of_an_answer_is_told_at_its_end() {
    let stream = "event: response.created\ndata: {\"response\":{\"id\":\"resp_2\",\"usage\":null},\
        \"type\":\"response.created\"}\n\nevent: response.completed\ndata: {\"response\":{\"id\":\"resp_2\",\
        \"usage\":{\"input_tokens\":80,\"output_tokens\":3,\"input_tokens_details\":{\"cached_tokens\":64}}}}\n\n";
    let usage = Usage { prompt_tokens: Some(80), completion_tokens: Some(3), cached_tokens: Some(64) };
    for answered in [ANSWER, stream] {
        for chunk_bytes in [1, 40, 10_000] {
            let mut worker = worker();
            let mut session = asking(r#"{"model":"m","input":"x"}"#, &mut worker);
            session.step(Input::Reply(reply(5)), &mut worker, START_US);
            let end = told(session, &mut worker, answered, chunk_bytes);
            assert_eq!((end.response, end.usage), (Some(response("resp_2")), usage));
        }
    }
}

#[test]
fn whoever_decided_where_a_response_is_kept_is_told() {
    // By the filter's own hashing, and by the proxy, which had the body passed on unread.
    let mut worker = worker();
    let mut session = asking(r#"{"model":"m","input":"x"}"#, &mut worker);
    session.step(Input::Failure(Failure::Unavailable), &mut worker, START_US);
    let end = told(session, &mut worker, ANSWER, 100);
    assert_eq!((end.endpoint.as_str(), end.response), (FIRST, Some(response("resp_2"))));

    let mut session = Session::new(START_US);
    let head =
        RequestHead { content_length: Some(1 << 40), ..head(Ok(Target::Prompt(KnownPath::Responses))) };
    session.step(Input::Headers(head), &mut worker, START_US);
    assert_eq!(session.state(), StateName::PassedThrough);
    assert_eq!(told(session, &mut worker, ANSWER, 100).response, Some(response("resp_2")));
}

#[test]
fn only_what_an_engine_keeps_is_looked_for() {
    let window = |mut session: Session, mut worker: Worker| {
        session.step(Input::Reply(reply(5)), &mut worker, START_US);
        session.step(answer(FIRST), &mut worker, START_US);
        session.window().map(|window| (window.head, window.tail))
    };
    for (body, head) in [
        (r#"{"input":"x"}"#, ANSWER_HEAD_BYTES),
        (r#"{"input":"x","store":true}"#, ANSWER_HEAD_BYTES),
        (r#"{"input":"x","store":null}"#, ANSWER_HEAD_BYTES),
        (r#"{"input":"x","store":false}"#, 0),
    ] {
        let mut worker = worker();
        let session = asking(body, &mut worker);
        assert_eq!(window(session, worker), Some((head, USAGE_TAIL_BYTES)), "{body}");
    }
    let mut worker = worker();
    let session = session_in(StateName::Asking, &mut worker);
    assert_eq!(window(session, worker), Some((0, USAGE_TAIL_BYTES)), "a completion");
    let mut worker = self::worker();
    let mut session = Session::new(START_US);
    session.step(Input::Headers(stored()), &mut worker, START_US);
    assert_eq!(window(session, worker), Some((0, 1)), "a stored response");
}
