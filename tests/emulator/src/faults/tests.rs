use super::*;

fn order(json: &str) -> FaultOrder {
    serde_json::from_str(json).unwrap()
}

fn with(json: &str) -> Faults {
    let mut faults = Faults::new(2);
    faults.apply(&order(json)).unwrap();
    faults
}

#[test]
fn counted_faults_run_out_in_a_fixed_order() {
    let mut faults = with(r#"{"events": {"drop": 1, "duplicate": 1, "delay": {"batches": 1, "ms": 5}}}"#);
    let fates: Vec<BatchFate> = (0..4).map(|_| faults.batch_fate(0)).collect();
    let delay = BatchFate::Delay(Duration::from_millis(5));
    assert_eq!(fates, [BatchFate::Drop, BatchFate::Duplicate, delay, BatchFate::Send]);
    assert_eq!(faults.batch_fate(1), BatchFate::Drop, "each rank has its own count");
}

#[test]
fn as_many_replay_questions_as_ordered_get_no_answer() {
    let mut faults = with(r#"{"events": {"rank": 1, "unanswered": 2}}"#);
    let unanswered = [0, 1, 1, 1].map(|rank| faults.leaves_unanswered(rank));
    assert_eq!(unanswered, [false, true, true, false]);
}

#[test]
fn an_order_for_one_rank_leaves_the_other_alone() {
    let mut faults = with(r#"{"events": {"rank": 1, "silent": true}}"#);
    assert_eq!(faults.batch_fate(0), BatchFate::Send);
    assert_eq!(faults.batch_fate(1), BatchFate::Ignore);
    faults.apply(&order(r#"{"events": {"silent": false}}"#)).unwrap();
    assert_eq!(faults.batch_fate(1), BatchFate::Send);
}

#[test]
fn a_share_of_errors_is_spread_evenly() {
    let mut faults = with(r#"{"http": {"error": {"status": 503, "share": 0.25}}}"#);
    let failed: Vec<bool> = (0..8).map(|_| faults.http_fate() == HttpFate::Fail(503)).collect();
    assert_eq!(failed, [false, false, false, true, false, false, false, true]);
}

#[test]
fn resets_come_before_errors_and_a_hang_before_both() {
    let mut faults = with(r#"{"http": {"error": {"status": 500, "next": 1}, "reset": 1, "hang": true}}"#);
    assert_eq!(faults.http_fate(), HttpFate::Hang);
    faults.apply(&order(r#"{"http": {"hang": false}}"#)).unwrap();
    let fates: Vec<HttpFate> = (0..3).map(|_| faults.http_fate()).collect();
    assert_eq!(fates, [HttpFate::Reset, HttpFate::Fail(500), HttpFate::Serve]);
}

#[test]
fn clear_drops_everything_before_the_rest_of_the_order() {
    let mut faults = with(r#"{"slow": 3.0, "events": {"drop": 5}}"#);
    faults.apply(&order(r#"{"clear": true, "events": {"duplicate": 1}}"#)).unwrap();
    assert_eq!(faults.slow, 1.0);
    assert_eq!(faults.batch_fate(0), BatchFate::Duplicate);
    assert_eq!(faults.batch_fate(0), BatchFate::Send);
}

#[test]
fn a_bad_order_changes_nothing_and_names_its_field() {
    let cases = [
        (r#"{"slow": 0, "events": {"drop": 1}}"#, "slow is 0: give a finite factor above 0"),
        (
            r#"{"http": {"error": {"status": 503, "share": 2}}}"#,
            "http.error.share is 2: give a number from 0 to 1",
        ),
        (
            r#"{"http": {"error": {"status": 200}}}"#,
            "http.error.status is 200: give a status from 400 to 599",
        ),
        (r#"{"events": {"rank": 2}}"#, "events.rank is 2: this server has 2 ranks, from 0"),
    ];
    for (json, message) in cases {
        let mut faults = Faults::new(2);
        assert_eq!(faults.apply(&order(json)).unwrap_err().to_string(), message);
        assert_eq!(faults.batch_fate(0), BatchFate::Send, "{json}");
    }
    assert!(serde_json::from_str::<FaultOrder>(r#"{"evnts": {}}"#).is_err(), "unknown fields are refused");
}

#[test]
fn counts_add_up_to_the_largest_at_most() {
    let mut faults = with(r#"{"events": {"drop": 4294967295, "delay": {"batches": 4294967295, "ms": 5}}}"#);
    faults.apply(&order(r#"{"events": {"drop": 1, "delay": {"batches": 1, "ms": 5}}}"#)).unwrap();
    assert_eq!(faults.batch_fate(0), BatchFate::Drop);
}
