use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Blocks by hand: what each slot has, and until when each block is expected.
#[derive(Default)]
struct Model {
    stored: BTreeSet<(u32, usize)>,
    expected: BTreeMap<u32, u64>,
}

#[derive(Clone, Debug)]
enum Step {
    Store(u32, usize),
    Release(u32, usize),
    Expect(u32, u32, u64),
    Expire(u64),
}

const BLOCKS: u32 = 140;

fn run(steps: &[Step]) {
    let (mut hold, mut model) = (Hold::default(), Model::default());
    for step in steps {
        match *step {
            Step::Store(at, slot) => {
                hold.store(at, slot);
                model.stored.insert((at, slot));
                model.expected.remove(&at);
            }
            Step::Release(at, slot) => {
                hold.release(at, slot);
                model.stored.remove(&(at, slot));
            }
            Step::Expect(from, to, until) => {
                let mut first = 0;
                for at in from..to {
                    let known = model.expected.entry(at).or_insert_with(|| {
                        first += 1;
                        until
                    });
                    *known = until.max(*known);
                }
                assert_eq!(hold.expect(from, to, Millis(until)), first);
            }
            Step::Expire(until) => {
                let before = model.expected.len();
                model.expected.retain(|_, known| *known > until);
                let expired = u32::try_from(before - model.expected.len()).expect("few");
                assert_eq!(hold.expire(Millis(until)), expired);
            }
        }
        compare(&hold, &model);
    }
}

fn compare(hold: &Hold, model: &Model) {
    for at in 0..BLOCKS {
        for slot in 0..3 {
            assert_eq!(hold.stored(at).has(slot), model.stored.contains(&(at, slot)), "{at} in {slot}");
        }
        assert_eq!(hold.is_expected(at), model.expected.contains_key(&at), "{at}");
    }
    let counts = |at: u32| model.expected.contains_key(&at) || model.stored.contains(&(at, 0));
    for end in [0, 1, 5, 64, BLOCKS] {
        let reach = (0..end).find(|at| !counts(*at)).unwrap_or(end);
        assert_eq!(hold.reach(end), reach, "up to {end}");
    }
    let last = model.stored.last().map(|(at, _)| at + 1).max(model.expected.keys().last().map(|at| at + 1));
    assert_eq!(hold.end(), last.unwrap_or(0));
    assert_eq!(hold.is_empty(), last.is_none());
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = || prop_oneof![3 => 0..6_u32, 1 => 0..BLOCKS];
    let slot = || prop_oneof![4 => Just(0_usize), 1 => 0..3_usize];
    let one = prop_oneof![
        6 => (at(), slot()).prop_map(|(at, slot)| Step::Store(at, slot)),
        4 => (at(), slot()).prop_map(|(at, slot)| Step::Release(at, slot)),
        3 => (at(), 0..8_u32, 1..9_u64).prop_map(|(from, length, until)| {
            Step::Expect(from, (from + length).min(BLOCKS), until)
        }),
        1 => (0..9_u64).prop_map(Step::Expire),
    ];
    proptest::collection::vec(one, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_hold_is_the_set_of_its_blocks(steps in steps()) {
        run(&steps);
    }
}

#[test]
fn the_first_blocks_of_one_group_need_no_box() {
    let mut hold = Hold::default();
    for at in 0..100 {
        hold.store(at, 0);
    }
    assert!(hold.rest.is_none());
    hold.release(50, 0);
    assert!(hold.rest.is_some(), "a hole");
    hold.store(50, 0);
    assert!(hold.rest.is_none(), "mended");
    for at in (0..100).rev() {
        hold.release(at, 0);
        assert!(hold.rest.is_none());
    }
    assert!(hold.is_empty());
}
