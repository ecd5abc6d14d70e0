use warmpath_proto::v1::{End, Event, FirstByte};

use super::*;

fn told(decision_id: u64, what: Option<event::What>) -> Event {
    Event { decision_id, elapsed_us: u64::MAX, what }
}

#[test]
fn reports_keep_their_order_and_unknown_ones_are_left_out() {
    let first = event::What::FirstByte(FirstByte { endpoint: "10.0.0.1:80".into(), http_status: 200 });
    let end = event::What::End(End {
        cached_tokens: Some(5),
        prompt_tokens: Some(9),
        completion_tokens: Some(3),
        response_key: 7,
        fallback_reason: "deadline".into(),
        ..End::default()
    });
    let events = vec![told(1, Some(first)), told(2, None), told(0, Some(end))];
    let reports = reports(ReportRequest { events }).unwrap();
    assert_eq!(reports.len(), 2);
    assert_eq!((reports[0].decision, reports[0].elapsed), (Decided::Indexer(DecisionId(1)), ELAPSED_MAX));
    assert_eq!(reports[1].decision, Decided::Elsewhere(outcome::Reason::Deadline));
    let end = Reported::End {
        endpoint: String::new(),
        http_status: 0,
        usage: Usage { prompt_tokens: Some(9), cached_tokens: Some(5), completion_tokens: Some(3) },
        response: ResponseKey::new(7),
        is_failure: false,
    };
    assert_eq!(reports[1].what, end);
}

#[test]
fn broken_connections_and_server_errors_are_failures_and_clients_that_leave_are_not() {
    let table = [
        (200, EndCause::Complete, false),
        (404, EndCause::Complete, false),
        (500, EndCause::Complete, true),
        (503, EndCause::Complete, true),
        (200, EndCause::UpstreamReset, true),
        (0, EndCause::UpstreamReset, true),
        (200, EndCause::ClientReset, false),
        (0, EndCause::ClientReset, false),
    ];
    for (http_status, cause, expected) in table {
        let end = event::What::End(End { http_status, cause: cause.into(), ..End::default() });
        let reports = reports(ReportRequest { events: vec![told(1, Some(end))] }).unwrap();
        let Reported::End { is_failure, .. } = &reports[0].what else { panic!("an end") };
        assert_eq!(*is_failure, expected, "{http_status} {cause:?}");
    }
}

#[test]
fn reports_beyond_the_contract_are_refused() {
    let too_many = ReportRequest { events: vec![told(1, None); REPORT_EVENTS_MAX + 1] };
    assert!(matches!(reports(too_many), Err(Invalid::TooMany { field: "events", .. })));
    let long = event::What::End(End { endpoint: "x".repeat(ENDPOINT_BYTES_MAX + 1), ..End::default() });
    assert!(reports(ReportRequest { events: vec![told(1, Some(long))] }).is_err());
}

#[test]
fn what_is_passed_on_is_what_was_reported() {
    let end = End {
        endpoint: "10.0.0.1:80".into(),
        http_status: 200,
        cached_tokens: Some(0),
        prompt_tokens: Some(9),
        response_key: 7,
        ..End::default()
    };
    let lost = End { cause: EndCause::UpstreamReset.into(), ..End::default() };
    let nobody = End { fallback_reason: "deadline".into(), ..End::default() };
    for (id, what) in [
        (1, event::What::FirstByte(FirstByte { endpoint: "10.0.0.1:80".into(), http_status: 404 })),
        (2, event::What::Alive(wire::Alive {})),
        (3, event::What::End(end)),
        (4, event::What::End(lost)),
        (0, event::What::End(nobody)),
    ] {
        let reported = report(told(id, Some(what))).unwrap().unwrap();
        assert_eq!(report(event(&reported)), Ok(Some(reported)));
    }
}
