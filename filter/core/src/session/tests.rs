//! Every pair of state and input, and what the books say afterwards.

mod responses;

use super::*;
use crate::config::Config;
use crate::limits::{CONFIRM_AFTER_MS, LEASE_RENEWAL_MS, SLOW_BODY_BYTES};
use crate::report::{End, EndCause, Event, What};
use crate::response::ResponseKey;
use crate::ring::{EndpointSet, Place};
use crate::usage::Usage;

const START_US: u64 = 1_000_000;
const TIMEOUT_US: u64 = 50_000;
const BODY: &[u8] = br#"{"model":"m","prompt":"hello"}"#;
const FIRST: &str = "10.0.0.1:8000";
const SECOND: &str = "10.0.0.2:8000";

const STATES: [StateName; 8] = [
    StateName::Headers,
    StateName::Collecting,
    StateName::Asking,
    StateName::Routed,
    StateName::FallenBack,
    StateName::PassedThrough,
    StateName::Answering,
    StateName::Done,
];

fn worker() -> Worker {
    let mut worker = Worker::new(Config::read(b"").expect("default"));
    let endpoints = vec![(FIRST.to_owned(), 1), (SECOND.to_owned(), 1)];
    worker.ring.replace(EndpointSet { version: 3, endpoints });
    worker
}

fn head(target: Result<Target, Reason>) -> RequestHead {
    RequestHead {
        target,
        content_length: None,
        is_encoded: false,
        is_multipart: false,
        awaits_engine: false,
        ends: false,
        group: 0,
        policy: None,
    }
}

fn completion() -> RequestHead {
    head(Ok(Target::Prompt(KnownPath::Completions)))
}

/// A request about a response that an engine keeps.
fn stored() -> RequestHead {
    RequestHead { ends: true, ..head(Ok(Target::Stored(response("resp_1")))) }
}

fn response(id: &str) -> ResponseKey {
    ResponseKey::of(id.as_bytes()).expect("a key")
}

fn reply(decision_id: u64) -> Reply {
    let candidate = |endpoint: &str, cached_tokens| Candidate {
        place: Place { endpoint: endpoint.to_owned(), rank: None },
        cached_tokens,
    };
    Reply {
        decision_id,
        candidates: vec![candidate(FIRST, 64), candidate(SECOND, 16)],
        prompt_tokens: 80,
        policy: "cost".to_owned(),
        ..Reply::default()
    }
}

fn answer(endpoint: &str) -> Input<'static> {
    Input::AnswerHeaders { status: 200, endpoint: endpoint.to_owned(), ends: false }
}

/// The inputs that lead to a state.
fn way_to(state: StateName) -> Vec<Input<'static>> {
    let collecting = vec![Input::Headers(completion()), Input::BodyChunk { bytes: BODY.len(), ends: false }];
    let asking = [collecting.clone(), vec![Input::Body(BODY), Input::Asked(7)]].concat();
    let and = |way: &[Input<'static>], next| [way, &[next]].concat();
    match state {
        StateName::Headers => vec![],
        StateName::Collecting => collecting,
        StateName::Asking => asking,
        StateName::Routed => and(&asking, Input::Reply(reply(1))),
        StateName::FallenBack => and(&asking, Input::Failure(Failure::Unavailable)),
        StateName::PassedThrough => vec![Input::Headers(head(Err(Reason::Path)))],
        StateName::Answering => and(&way_to(StateName::Routed), answer(FIRST)),
        StateName::Done => and(&way_to(StateName::Answering), Input::Log(Ending::default())),
    }
}

fn session_in(state: StateName, worker: &mut Worker) -> Session {
    let mut session = Session::new(START_US);
    for input in way_to(state) {
        session.step(input, worker, START_US);
    }
    assert_eq!(session.state(), state);
    session
}

/// One letter for each effect.
fn letters(effects: &[Effect<'_>]) -> String {
    let letter = |effect: &Effect<'_>| match effect {
        Effect::Hold => 'H',
        Effect::ReadBody(_) => 'B',
        Effect::Ask(_) => 'A',
        Effect::Cancel(_) => 'C',
        Effect::Route(_) => 'R',
        Effect::Settled(_) => 'S',
        Effect::Resume => 'U',
        Effect::Receipt(_) => 'P',
    };
    effects.iter().map(letter).collect()
}

#[test]
fn every_pair_of_state_and_input_does_what_the_table_says() {
    let more = Input::BodyChunk { bytes: 40, ends: false };
    let last = Input::BodyChunk { bytes: 40, ends: true };
    let large = Input::BodyChunk { bytes: usize::MAX, ends: false };
    let chunk = Input::AnswerChunk { head: b"x", tail: b"x", ends: false };
    // Rows: inputs, and how long after the question they come. Columns: states. A cell: the next state's first letters
    // where it changes, then the effects. `U` lets a held request go on.
    #[rustfmt::skip]
    let table = [
        //                                             Headers   Collecting Asking      Routed Fallen Passed Answer Done
        (Input::Headers(completion()), 0,             ["Col H",  "",        "H",        "",    "",    "",    "",    ""]),
        (Input::Headers(stored()), 0,                 ["Ask A",  "",        "H",        "",    "",    "",    "",    ""]),
        (Input::Headers(head(Err(Reason::Path))), 0,  ["Pas S",  "",        "H",        "",    "",    "",    "",    ""]),
        (more, 0,                                     ["",       "H",       "H",        "",    "",    "",    "",    ""]),
        (last, 0,                                     ["",       "B",       "H",        "",    "",    "",    "",    ""]),
        (large, 0,                                    ["",       "Pas S",   "H",        "",    "",    "",    "",    ""]),
        (Input::Trailers, 0,                          ["",       "B",       "H",        "",    "",    "",    "",    ""]),
        (Input::Body(BODY), 0,                        ["",       "Ask A",   "H",        "",    "",    "",    "",    ""]),
        (Input::Body(b"x"), 0,                        ["",       "Pas S",   "H",        "",    "",    "",    "",    ""]),
        (Input::Asked(9), 0,                          ["",       "",        "H",        "",    "",    "",    "",    ""]),
        (Input::Reply(reply(2)), 0,                   ["",       "",        "Rou RSU",  "",    "",    "",    "",    ""]),
        (Input::Reply(Reply::default()), 0,           ["",       "",        "Pas SU",   "",    "",    "",    "",    ""]),
        (Input::Failure(Failure::Unavailable), 0,     ["",       "",        "Fal RSU",  "",    "",    "",    "",    ""]),
        (Input::Failure(Failure::Rejected), 0,        ["",       "",        "Fal RSU",  "",    "",    "",    "",    ""]),
        (Input::Failure(Failure::BadReply), 0,        ["",       "",        "Fal RSU",  "",    "",    "",    "",    ""]),
        (Input::Tick, TIMEOUT_US - 1,                 ["",       "",        "",         "",    "",    "",    "",    ""]),
        (Input::Tick, TIMEOUT_US,                     ["",       "",        "Fal CRSU", "",    "",    "",    "",    ""]),
        (Input::Tick, u64::MAX / 2,                   ["",       "",        "Fal CRSU", "",    "",    "",    "",    ""]),
        (answer(SECOND), 0,                           ["Ans S",  "Ans S",   "Ans CS",   "Ans", "Ans", "Ans", "",    ""]),
        (chunk, 0,                                    ["",       "",        "",         "",    "",    "",    "",    ""]),
        (Input::AnswerTrailers, 0,                    ["",       "",        "",         "",    "",    "",    "",    ""]),
        (Input::Log(Ending::default()), 0,            ["Don S",  "Don S",   "Don S",    "Don", "Don", "Don", "Don", ""]),
    ];
    for (input, after_us, cells) in table {
        for (state, cell) in STATES.into_iter().zip(cells) {
            let mut worker = worker();
            let mut session = session_in(state, &mut worker);
            let effects = session.step(input.clone(), &mut worker, START_US + after_us);
            let (next, expected) = match cell.split_once(' ') {
                Some((next, effects)) => (next, effects),
                None if cell.starts_with(|c: char| c.is_ascii_uppercase()) && cell.len() == 3 => (cell, ""),
                None => ("", cell),
            };
            let next = if next.is_empty() { format!("{state:?}") } else { next.to_owned() };
            let now = format!("{:?}", session.state());
            assert!(now.starts_with(&next), "{state:?} and {input:?}: {now}, not {next}");
            assert_eq!(letters(&effects), expected, "{state:?} and {input:?}");
            assert!(effects.len() <= EFFECTS_MAX);
        }
    }
}

fn settled(effects: &[Effect<'_>]) -> (Outcome, Option<Reason>) {
    let found = effects.iter().find_map(|effect| match effect {
        Effect::Settled(settled) => Some((settled.outcome, settled.reason)),
        _ => None,
    });
    found.expect("settled")
}

#[test]
fn the_headers_decide_what_is_never_collected() {
    let with = |change: fn(&mut RequestHead)| {
        let mut head = completion();
        change(&mut head);
        let effects = Session::new(0).step(Input::Headers(head), &mut worker(), 0);
        settled(&effects).1
    };
    assert_eq!(with(|h| h.target = Err(Reason::Path)), Some(Reason::Path));
    assert_eq!(with(|h| h.target = Err(Reason::Method)), Some(Reason::Method));
    assert_eq!(with(|h| h.ends = true), Some(Reason::EmptyBody));
    assert_eq!(with(|h| h.content_length = Some(0)), Some(Reason::EmptyBody));
    assert_eq!(with(|h| h.content_length = Some(1 << 40)), Some(Reason::BodyTooLarge));
    assert_eq!(with(|h| h.is_encoded = true), Some(Reason::ContentEncoding));
    assert_eq!(with(|h| h.is_multipart = true), Some(Reason::NotJson));
    assert_eq!(with(|h| h.awaits_engine = true), Some(Reason::ExpectContinue));
}

#[test]
fn each_failure_has_its_reason_and_only_a_silent_indexer_counts_as_down() {
    for (failure, after_us, reason, counts) in [
        (Failure::of_grpc_status(14), 1000, Reason::Unavailable, true),
        (Failure::of_grpc_status(1), TIMEOUT_US, Reason::Deadline, true),
        // The proxy's timer went off a little early.
        (Failure::of_grpc_status(14), TIMEOUT_US - 1000, Reason::Deadline, true),
        (Failure::of_grpc_status(14), TIMEOUT_US / 10 * 9, Reason::Deadline, true),
        (Failure::of_grpc_status(14), TIMEOUT_US / 10 * 8, Reason::Unavailable, true),
        (Failure::of_grpc_status(3), 1000, Reason::Rejected, false),
        (Failure::BadReply, 1000, Reason::BadReply, true),
    ] {
        let mut worker = worker();
        for _ in 0..3 {
            let mut session = session_in(StateName::Asking, &mut worker);
            let effects = session.step(Input::Failure(failure), &mut worker, START_US + after_us);
            assert_eq!(settled(&effects), (Outcome::Fallback, Some(reason)));
        }
        assert_eq!(worker.circuit.is_open(), counts, "{failure:?}");
    }
}

/// So a client with huge prompts takes nobody else's locality.
#[test]
fn a_missed_deadline_says_nothing_of_the_indexer_where_the_body_is_huge() {
    let late = [
        (Input::Tick, TIMEOUT_US, false),
        (Input::Failure(Failure::Unavailable), TIMEOUT_US, false),
        (Input::Failure(Failure::Unavailable), 1000, true),
        (Input::Failure(Failure::BadReply), TIMEOUT_US, true),
    ];
    for (input, after_us, counts) in late {
        for (bytes, counts) in [(SLOW_BODY_BYTES, counts), (SLOW_BODY_BYTES - 1, true)] {
            let frame = r#"{"model":"m","prompt":""}"#.len();
            let body = format!(r#"{{"model":"m","prompt":"{}"}}"#, "a".repeat(bytes - frame));
            let mut worker = worker();
            for _ in 0..3 {
                let mut session = session_in(StateName::Collecting, &mut worker);
                session.step(Input::Body(body.as_bytes()), &mut worker, START_US);
                session.step(input.clone(), &mut worker, START_US + after_us);
            }
            assert_eq!(worker.circuit.is_open(), counts, "{input:?} after {after_us} of {bytes} bytes");
        }
    }
    // Nor does it end a trial: another question may be asked at once.
    let mut worker = worker();
    (0..3).for_each(|_| worker.circuit.failed(START_US));
    worker.circuit.probed();
    let body = format!(r#"{{"model":"m","prompt":"{}"}}"#, "a".repeat(SLOW_BODY_BYTES));
    let mut session = session_in(StateName::Collecting, &mut worker);
    session.step(Input::Body(body.as_bytes()), &mut worker, START_US);
    session.step(Input::Tick, &mut worker, START_US + TIMEOUT_US);
    assert!(!worker.circuit.is_open() && worker.circuit.may_ask(START_US + TIMEOUT_US));
}

#[test]
fn a_question_that_could_not_be_sent_is_answered_in_the_same_callback() {
    let mut worker = worker();
    let mut session = session_in(StateName::Collecting, &mut worker);
    session.step(Input::Body(BODY), &mut worker, START_US);
    let effects = session.step(Input::Failure(Failure::Unavailable), &mut worker, START_US);
    assert_eq!(letters(&effects), "RS", "no resume: the callback itself lets the request go on");
}

#[test]
fn with_an_open_circuit_nobody_is_asked() {
    let mut worker = worker();
    (0..3).for_each(|_| worker.circuit.failed(START_US));
    let mut session = session_in(StateName::Collecting, &mut worker);
    let effects = session.step(Input::Body(BODY), &mut worker, START_US);
    assert_eq!(letters(&effects), "RS");
    assert_eq!(settled(&effects), (Outcome::Fallback, Some(Reason::CircuitOpen)));
}

#[test]
fn without_an_endpoint_the_proxy_decides() {
    let mut worker = Worker::new(Config::read(b"").expect("default"));
    let mut session = session_in(StateName::Asking, &mut worker);
    let effects = session.step(Input::Failure(Failure::Unavailable), &mut worker, START_US);
    assert_eq!(letters(&effects), "SU");
    assert_eq!(settled(&effects), (Outcome::Passed, Some(Reason::Unavailable)));
}

#[test]
fn a_reply_routes_to_its_candidates_and_brings_the_endpoints() {
    let mut worker = worker();
    let mut session = session_in(StateName::Asking, &mut worker);
    let mut reply = reply(9);
    reply.candidates[0].place.rank = Some(1);
    (reply.load_only, reply.reason) = (true, Some(Reason::Busy));
    reply.endpoints =
        Some(EndpointSet { version: 4, endpoints: vec![(FIRST.to_owned(), 2), (SECOND.to_owned(), 2)] });
    let effects = session.step(Input::Reply(reply), &mut worker, START_US);
    let route = Route { destination: format!("{FIRST},{SECOND}"), rank: Some(1) };
    assert_eq!(effects.first(), Some(&Effect::Route(route)));
    assert_eq!(settled(&effects), (Outcome::LoadOnly, Some(Reason::Busy)));
    assert_eq!((worker.ring.version(), worker.ring.in_flight()), (4, 1));
}

#[test]
fn a_prompt_known_in_part_is_scored_and_says_why_it_is_not_known_whole() {
    let mut worker = worker();
    let mut session = session_in(StateName::Asking, &mut worker);
    let reply = Reply { reason: Some(Reason::Media), ..reply(9) };
    let effects = session.step(Input::Reply(reply), &mut worker, START_US);
    assert_eq!(settled(&effects), (Outcome::Scored, Some(Reason::Media)));
}

#[test]
fn candidates_that_cannot_be_used_are_left_out() {
    let routed = |names: &[(&str, Option<u32>)]| {
        let mut worker = worker();
        let mut session = session_in(StateName::Asking, &mut worker);
        let mut reply = reply(9);
        reply.candidates = names
            .iter()
            .map(|(endpoint, rank)| Candidate {
                place: Place { endpoint: (*endpoint).to_owned(), rank: *rank },
                cached_tokens: 0,
            })
            .collect();
        let effects = session.step(Input::Reply(reply), &mut worker, START_US);
        effects.into_iter().find_map(|effect| match effect {
            Effect::Route(route) => Some((route.destination, route.rank)),
            _ => None,
        })
    };
    let many = ["a:1", "b:1", "c:1", "d:1"].map(|e| (e, None));
    assert_eq!(routed(&many), Some(("a:1,b:1,c:1".to_owned(), None)));
    assert_eq!(routed(&[("a b", None), ("", None), ("b:1", None)]), Some(("b:1".to_owned(), None)));
    // An endpoint that is not known to have the rank cannot take a retry over; another rank of one endpoint is no retry.
    assert_eq!(
        routed(&[(FIRST, Some(0)), ("x:1", None), (SECOND, Some(0))]),
        Some((format!("{FIRST},{SECOND}"), Some(0)))
    );
    assert_eq!(routed(&[("a:1", Some(0)), ("a:1", Some(1))]), Some(("a:1".to_owned(), Some(0))));
    assert_eq!(routed(&[("a,b", None)]), None);
}

fn events(worker: &mut Worker) -> Vec<Event> {
    worker.reports.take().to_vec()
}

#[test]
fn the_whole_life_of_a_scored_request_is_reported() {
    let mut worker = worker();
    let mut session = session_in(StateName::Routed, &mut worker);
    let mut at = |input, us: u64| session.step(input, &mut worker, START_US + us);
    at(answer(SECOND), 10);
    at(Input::AnswerChunk { head: b"", tail: b"", ends: false }, 20);
    at(
        Input::AnswerChunk {
            head: b"",
            tail: br#"data: {"usage":{"prompt_tokens":80,"completion_tokens":2,"#,
            ends: false,
        },
        30,
    );
    at(
        Input::AnswerChunk {
            head: b"",
            tail: br#""prompt_tokens_details":{"cached_tokens":64}}}"#,
            ends: true,
        },
        40,
    );
    at(Input::Log(Ending { flags: 0, attempts: 2 }), 50);
    let usage = Usage { prompt_tokens: Some(80), completion_tokens: Some(2), cached_tokens: Some(64) };
    let end = End {
        endpoint: SECOND.to_owned(),
        http_status: 200,
        cause: EndCause::Complete,
        usage,
        attempts: 2,
        fallback_reason: None,
        response: None,
    };
    let first_byte = What::FirstByte { endpoint: SECOND.to_owned(), http_status: 200 };
    let expected = [
        Event { decision_id: 1, elapsed_us: 30, what: first_byte },
        Event { decision_id: 1, elapsed_us: 50, what: What::End(end) },
    ];
    assert_eq!(events(&mut worker), expected);
    assert_eq!(worker.ring.in_flight(), 0);
}

#[test]
fn who_ended_it_is_told() {
    let ends = |state, before: Option<Input<'static>>, flags| {
        let mut worker = worker();
        let mut session = session_in(state, &mut worker);
        if let Some(input) = before {
            session.step(input, &mut worker, START_US);
        }
        session.step(Input::Log(Ending { flags, attempts: 0 }), &mut worker, START_US);
        match events(&mut worker).pop().map(|event| event.what) {
            Some(What::End(end)) => end.cause,
            other => panic!("{other:?}"),
        }
    };
    let done = || Some(Input::AnswerTrailers);
    assert_eq!(ends(StateName::Answering, done(), 0), EndCause::Complete);
    assert_eq!(ends(StateName::Answering, None, 0), EndCause::UpstreamReset);
    assert_eq!(ends(StateName::Answering, None, 0x4000), EndCause::ClientReset);
    assert_eq!(ends(StateName::Answering, done(), 1 << 28), EndCause::ClientReset);
    // The proxy answered 503 to the end because the endpoint broke.
    assert_eq!(ends(StateName::Answering, done(), 0x40), EndCause::UpstreamReset);
    assert_eq!(ends(StateName::Routed, None, 0), EndCause::ClientReset);
    assert_eq!(ends(StateName::Collecting, None, 0), EndCause::ClientReset);
}

#[test]
fn a_request_that_no_indexer_decided_is_reported_with_its_reason() {
    let mut worker = worker();
    let mut session = session_in(StateName::FallenBack, &mut worker);
    assert_eq!(worker.ring.in_flight(), 1);
    session.step(answer(FIRST), &mut worker, START_US);
    session.step(Input::AnswerChunk { head: b"x", tail: b"x", ends: true }, &mut worker, START_US);
    session.step(Input::Log(Ending::default()), &mut worker, START_US + 5);
    let reported = events(&mut worker);
    assert!(matches!(
        reported.as_slice(),
        [Event {
            decision_id: 0,
            elapsed_us: 5,
            what: What::End(End { fallback_reason: Some(Reason::Unavailable), .. })
        }]
    ));
    assert_eq!(worker.ring.in_flight(), 0);
}

#[test]
fn requests_that_run_on_no_engine_are_nobodys_business() {
    let mut worker = worker();
    let mut session = session_in(StateName::PassedThrough, &mut worker);
    session.step(answer(FIRST), &mut worker, START_US);
    assert_eq!(session.window(), None);
    assert_eq!(worker.ring.in_flight(), 0);
    session.step(Input::AnswerChunk { head: b"x", tail: b"x", ends: true }, &mut worker, START_US);
    session.step(Input::Log(Ending::default()), &mut worker, START_US);
    assert!(events(&mut worker).is_empty());
}

#[test]
fn the_load_follows_the_endpoint_that_really_answers() {
    let mut worker = worker();
    let mut session = session_in(StateName::Routed, &mut worker);
    session.step(answer("10.9.9.9:1"), &mut worker, START_US);
    worker.ring.release(FIRST);
    worker.ring.release(SECOND);
    assert_eq!(worker.ring.in_flight(), 1, "counted where it is, and there only");
    session.step(Input::Log(Ending::default()), &mut worker, START_US);
    assert_eq!(worker.ring.in_flight(), 0);
}

#[test]
fn where_it_was_served_is_held_against_where_it_was_sent() {
    let astray = |state, endpoint: &str, attempts| {
        let mut worker = worker();
        let mut session = session_in(state, &mut worker);
        session.step(answer(endpoint), &mut worker, START_US);
        session.step(Input::Log(Ending { flags: 0, attempts }), &mut worker, START_US);
        worker.followed.take_astray()
    };
    assert_eq!(astray(StateName::Routed, FIRST, 1), 0);
    assert_eq!(astray(StateName::Routed, SECOND, 1), 1);
    assert_eq!(astray(StateName::Routed, SECOND, 2), 0, "a retry goes to the next one");
    assert_eq!(astray(StateName::Routed, "", 1), 0, "the proxy answered by itself");
    assert_eq!(astray(StateName::FallenBack, "10.9.9.9:1", 1), 1);
    assert_eq!(astray(StateName::PassedThrough, SECOND, 1), 0, "it was sent nowhere");
}

#[test]
fn a_decision_that_comes_too_late_is_released_at_once() {
    for state in STATES.into_iter().filter(|state| *state != StateName::Asking) {
        let mut worker = worker();
        let mut session = session_in(state, &mut worker);
        events(&mut worker);
        session.step(Input::Reply(reply(77)), &mut worker, START_US);
        let reported = events(&mut worker);
        assert!(
            matches!(reported.as_slice(), [Event { decision_id: 77, what: What::End(_), .. }]),
            "{state:?}: {reported:?}"
        );
    }
}

#[test]
fn a_decision_is_confirmed_soon_and_its_lease_renewed_while_nothing_else_is_reported() {
    let (confirm_us, lease_us) = (CONFIRM_AFTER_MS * 1000, LEASE_RENEWAL_MS * 1000);
    for state in [StateName::Routed, StateName::Answering] {
        let mut worker = worker();
        let mut session = session_in(state, &mut worker);
        let mut due_us = START_US;
        for pause_us in [confirm_us, lease_us, lease_us] {
            due_us += pause_us;
            assert_eq!(session.due_us(&worker), Some(due_us));
            session.step(Input::Tick, &mut worker, due_us - 1);
            assert!(worker.reports.is_empty());
            session.step(Input::Tick, &mut worker, due_us);
            let told = events(&mut worker);
            assert!(matches!(told.as_slice(), [Event { decision_id: 1, what: What::Alive, .. }]));
        }
    }
    // Without a decision there is no lease.
    let mut worker = worker();
    assert_eq!(session_in(StateName::FallenBack, &mut worker).due_us(&worker), None);
}

#[test]
fn a_body_that_never_begins_is_not_waited_for() {
    let mut worker = worker();
    let mut session = Session::new(START_US);
    session.step(Input::Headers(completion()), &mut worker, START_US);
    let due_us = session.due_us(&worker).expect("due");
    assert!(session.step(Input::Tick, &mut worker, due_us - 1).is_empty());
    let effects = session.step(Input::Tick, &mut worker, due_us);
    assert_eq!(letters(&effects), "SU");
    assert_eq!(settled(&effects), (Outcome::Passed, Some(Reason::BodyNotSeen)));
    // Once it has begun, it may take as long as it takes.
    let mut session = session_in(StateName::Collecting, &mut worker);
    assert_eq!(session.due_us(&worker), None);
    assert!(session.step(Input::Tick, &mut worker, u64::MAX).is_empty());
}

/// What a request is asked about with: the policy of its route before the configured one, and what keeps it together with
/// others.
#[test]
fn a_route_s_policy_and_a_group_are_told() {
    let asked = |head: RequestHead, policy: &str| {
        let mut worker = worker();
        worker.config.policy = policy.to_owned();
        let mut session = Session::new(START_US);
        session.step(Input::Headers(head), &mut worker, START_US);
        session.step(Input::BodyChunk { bytes: BODY.len(), ends: false }, &mut worker, START_US);
        match session.step(Input::Body(BODY), &mut worker, START_US).pop() {
            Some(Effect::Ask(ask)) => (ask.policy.clone(), ask.group, ask.request.affinity),
            other => panic!("{other:?}"),
        }
    };
    let (policy, group, affinity) = asked(completion(), "sticky");
    assert_eq!((policy.as_str(), group), ("sticky", affinity), "by its beginning");
    let named = RequestHead { group: 7, policy: Some("least_load"), ..completion() };
    let (policy, group, _) = asked(named, "sticky");
    assert_eq!((policy.as_str(), group), ("least_load", 7));
}

#[test]
fn the_receipt_tells_what_happened() {
    let receipt = |state, endpoint: &str| {
        let mut worker = worker();
        worker.config.response_header = true;
        let mut session = session_in(state, &mut worker);
        match session.step(answer(endpoint), &mut worker, START_US).pop() {
            Some(Effect::Receipt(headers)) => headers
                .iter()
                .map(|(name, value)| format!("{}={value}", name.trim_start_matches("x-warmpath-")))
                .collect::<Vec<_>>()
                .join(" "),
            other => panic!("{other:?}"),
        }
    };
    let decided = "outcome=scored decision=0000000000000001 policy=cost";
    assert_eq!(
        receipt(StateName::Routed, FIRST),
        format!("{decided} endpoint={FIRST} cached-tokens=64 prompt-tokens=80")
    );
    assert_eq!(
        receipt(StateName::Routed, SECOND),
        format!("{decided} endpoint={SECOND} cached-tokens=16 prompt-tokens=80")
    );
    assert_eq!(receipt(StateName::Routed, "x:1"), format!("{decided} endpoint=x:1 prompt-tokens=80"));
    assert_eq!(
        receipt(StateName::FallenBack, FIRST),
        format!("outcome=fallback reason=unavailable endpoint={FIRST}")
    );
    assert_eq!(receipt(StateName::PassedThrough, ""), "outcome=passed reason=path");
    assert_eq!(receipt(StateName::Collecting, ""), "outcome=passed reason=answered_early");
}
