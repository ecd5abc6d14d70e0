use std::sync::LazyLock;

use super::*;

const MODEL: ModelIndex = ModelIndex(0);

static LOAD: LazyLock<LoadId> = LazyLock::new(LoadId::fresh);

#[test]
fn marks_change_at_their_thresholds_only() {
    use Mark::{Agreeing, Drifting};
    let thresholds = Thresholds { drifting_from: 4, agreeing_to: 1 };
    let table = [
        (Agreeing, 0, Agreeing),
        (Agreeing, 3, Agreeing),
        (Agreeing, 4, Drifting),
        (Agreeing, 32, Drifting),
        (Drifting, 32, Drifting),
        (Drifting, 4, Drifting),
        (Drifting, 2, Drifting),
        (Drifting, 1, Agreeing),
        (Drifting, 0, Agreeing),
    ];
    for (mark, differing, expected) in table {
        assert_eq!(transition(mark, differing, thresholds), expected, "{mark:?} with {differing}");
    }
    for signal in [Signal::Size, Signal::Cache] {
        let Thresholds { drifting_from, agreeing_to } = signal.thresholds();
        assert!(
            agreeing_to < drifting_from && drifting_from <= WINDOW,
            "{signal:?} would flap or never change"
        );
    }
}

#[test]
fn what_a_comparison_speaks_for() {
    let table = [
        (Signal::Size, 5, 5, Some(false)),
        (Signal::Size, 5, 6, Some(true)),
        (Signal::Size, 6, 5, Some(true)),
        (Signal::Size, 0, 0, Some(false)),
        (Signal::Cache, 0, 0, None),
        (Signal::Cache, 16, 16, Some(false)),
        (Signal::Cache, 16, 32, Some(true)),
        (Signal::Cache, 0, 16, Some(true)),
        // Evicted meanwhile.
        (Signal::Cache, 32, 0, Some(false)),
    ];
    for (signal, ours, theirs, expected) in table {
        assert_eq!(signal.reads(Compared { ours, theirs }), expected, "{signal:?} {ours} {theirs}");
    }
}

fn take(watch: &DriftWatch, signal: Signal, ours: u32, theirs: u32, times: u32) -> Mark {
    for _ in 0..times {
        compare(watch, *LOAD, signal, ours, theirs);
    }
    watch.state(MODEL).unwrap().mark
}

fn compare(watch: &DriftWatch, load: LoadId, signal: Signal, ours: u32, theirs: u32) {
    let loaded = LoadedModel { index: MODEL, load };
    watch.compare(loaded, "m", "10.0.0.1:80", signal, Compared { ours, theirs });
}

#[test]
fn a_model_is_marked_while_its_prompts_differ_and_not_by_an_odd_one() {
    let watch = DriftWatch::new(DriftMetrics::default());
    assert!(watch.state(MODEL).is_none());
    assert_eq!(take(&watch, Signal::Size, 10, 10, 50), Mark::Agreeing);
    assert_eq!(take(&watch, Signal::Size, 10, 11, WINDOW / 8 - 1), Mark::Agreeing);
    assert_eq!(take(&watch, Signal::Size, 10, 11, 1), Mark::Drifting);
    let state = watch.state(MODEL).unwrap();
    assert_eq!(state.example, Some(Compared { ours: 10, theirs: 11 }));
    assert_eq!((state.differing_sizes, state.differing_caches), (WINDOW / 8, 0));
    let gauge = || watch.metrics().drift.get_or_create(&ModelLabels { model: "m".into() }).get();
    assert_eq!(gauge(), 1);
    assert_eq!(take(&watch, Signal::Size, 10, 10, WINDOW - 1), Mark::Drifting);
    assert_eq!(take(&watch, Signal::Size, 10, 10, 1), Mark::Agreeing);
    assert_eq!(gauge(), 0);
}

#[test]
fn tokens_that_are_as_many_but_others_show_in_the_cache() {
    let watch = DriftWatch::new(DriftMetrics::default());
    assert_eq!(take(&watch, Signal::Size, 100, 100, WINDOW), Mark::Agreeing);
    assert_eq!(take(&watch, Signal::Cache, 0, 64, WINDOW * 3 / 4 - 1), Mark::Agreeing);
    assert_eq!(take(&watch, Signal::Cache, 0, 64, 1), Mark::Drifting);
    // Agreement of the other signal does not take the mark away.
    assert_eq!(take(&watch, Signal::Size, 100, 100, WINDOW), Mark::Drifting);
    watch.begin(MODEL, "m", Some(LoadId::fresh()));
    assert!(watch.state(MODEL).is_none());
}

/// Requests that were rendered before a reload, and are answered after it, do not mark the model that it corrected, nor
/// bring the gauge of one that it removed back.
#[test]
fn what_an_earlier_renderer_made_says_nothing_of_the_present_one() {
    let watch = DriftWatch::new(DriftMetrics::default());
    let (wrong, right) = (LoadId::fresh(), LoadId::fresh());
    let late = |watch: &DriftWatch| {
        for _ in 0..WINDOW {
            compare(watch, wrong, Signal::Size, 10, 11);
            compare(watch, wrong, Signal::Cache, 0, 64);
        }
    };
    late(&watch);
    assert_eq!(watch.state(MODEL).unwrap().mark, Mark::Drifting);
    watch.begin(MODEL, "m", Some(right));
    late(&watch);
    assert!(watch.state(MODEL).is_none());
    compare(&watch, right, Signal::Size, 10, 10);
    let state = watch.state(MODEL).unwrap();
    assert_eq!((state.mark, state.differing_sizes, state.differing_caches), (Mark::Agreeing, 0, 0));
    watch.begin(MODEL, "m", None);
    late(&watch);
    assert!(watch.state(MODEL).is_none());
    let labels = ModelLabels { model: "m".into() };
    assert!(watch.metrics().drift.get(&labels).is_none(), "a gauge of a model that is gone");
}
