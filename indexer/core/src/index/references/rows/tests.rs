use std::collections::HashMap;

use proptest::prelude::*;

use super::super::super::place::{ChainId, Place};
use super::*;

fn referent(number: u32) -> Referent {
    Referent::new(Place { chain: ChainId(number), at: number % 1000 })
}

/// Everything is found, and nothing else, and each row can be reached from its home.
fn check(rows: &Rows, model: &HashMap<EngineHash, Referent>) {
    assert_eq!(rows.len(), model.len());
    assert_eq!(rows.iter().map(|(hash, referent)| (hash, *referent)).collect::<HashMap<_, _>>(), *model);
    for (hash, referent) in model {
        assert_eq!(rows.get(*hash), Some(referent));
    }
    // A chunk has counted what went past it.
    let mut passed = vec![0_usize; rows.chunks.len()];
    for (hash, _) in rows.iter() {
        let at = rows.find(hash).expect("held");
        passed[at.home..at.chunk].iter_mut().for_each(|count| *count += 1);
    }
    for (chunk, passed) in rows.chunks.iter().zip(passed) {
        assert!(usize::from(chunk.passed()) == passed || chunk.passed() == u8::MAX);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u64),
    Take(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few hashes, so that many are put and taken again; several spans, so that tables grow and shrink.
    let hash = prop_oneof![0..20_u64, 0..300_u64, any::<u64>()];
    let step = (hash, any::<bool>());
    let step = step.prop_map(|(hash, puts)| if puts { Step::Put(hash) } else { Step::Take(hash) });
    proptest::collection::vec(step, 0..600)
}

proptest! {
    #[test]
    fn a_table_is_a_map(steps in steps()) {
        let (mut rows, mut model) = (Rows::default(), HashMap::new());
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Put(hash) => {
                    let hash = EngineHash(hash);
                    if let Err(at) = rows.find(hash) {
                        rows.insert(at, hash, referent(number));
                    }
                    model.entry(hash).or_insert(referent(number));
                }
                Step::Take(hash) => {
                    let hash = EngineHash(hash);
                    let found = rows.find(hash);
                    prop_assert_eq!(found.is_ok(), model.remove(&hash).is_some());
                    if let Ok(at) = found {
                        rows.remove(at);
                    }
                }
            }
            prop_assert_eq!(rows.get(EngineHash(7)), model.get(&EngineHash(7)));
        }
        check(&rows, &model);
    }
}

proptest! {
    /// Some hashes are looked at, then put in or taken out one after the other, each by what it showed before.
    #[test]
    fn a_glance_serves_as_a_search_made_later(
        groups in proptest::collection::vec(
            (proptest::collection::vec(prop_oneof![0..40_u64, any::<u64>()], 0..60), any::<bool>()),
            0..20,
        ),
    ) {
        let (mut rows, mut model) = (Rows::default(), HashMap::new());
        for (number, (hashes, puts)) in (0..).zip(groups) {
            let glances: Vec<_> = hashes.iter().map(|hash| rows.glance(EngineHash(*hash))).collect();
            for (hash, glance) in hashes.into_iter().map(EngineHash).zip(glances) {
                if puts {
                    let found = rows.find_glanced(hash, &glance);
                    prop_assert_eq!(found, rows.find(hash));
                    if let Err(at) = found {
                        rows.insert(at, hash, referent(number));
                    }
                    model.entry(hash).or_insert(referent(number));
                } else {
                    let found = rows.find_held(hash, &glance);
                    prop_assert_eq!(found, rows.find(hash).ok());
                    prop_assert_eq!(found.is_some(), model.remove(&hash).is_some());
                    if let Some(at) = found {
                        rows.remove(at);
                    }
                }
            }
        }
        check(&rows, &model);
    }
}

#[test]
fn a_glance_at_a_full_home_finds_what_lies_behind_it() {
    let mut rows = Rows::with_capacity(1_000);
    let (homes, seeds) = (rows.homes, rows.seeds);
    let table = Rows { homes, seeds, ..Rows::default() };
    let of_one_home = (0..).map(EngineHash).filter(|hash| table.home(*hash).home == 3);
    let hashes: Vec<EngineHash> = of_one_home.take(2 * WIDTH).collect();
    let glances: Vec<_> = hashes.iter().map(|hash| rows.glance(*hash)).collect();
    for (hash, glance) in hashes.iter().zip(&glances) {
        let at = rows.find_glanced(*hash, glance).expect_err("new");
        rows.insert(at, *hash, referent(1));
    }
    for (hash, glance) in hashes.iter().zip(&glances) {
        assert!(rows.find_glanced(*hash, glance).is_ok(), "put since the glance");
    }
    let glances: Vec<_> = hashes.iter().map(|hash| rows.glance(*hash)).collect();
    for (hash, glance) in hashes.iter().zip(&glances) {
        let at = rows.find_held(*hash, glance).expect("held");
        rows.remove(at);
        assert_eq!(rows.find_held(*hash, glance), None, "taken since the glance");
    }
    check(&rows, &HashMap::new());
}

#[test]
fn churn_takes_no_memory_and_what_is_left_free_is_bounded() {
    let mut rows = Rows::default();
    let hash = |number: u64| EngineHash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for number in 0..100_000 {
        let at = rows.find(hash(number)).expect_err("new");
        rows.insert(at, hash(number), referent(1));
        let room = rows.chunks.len() * WIDTH;
        assert!(number < 1_000 || room as u64 <= (number + 1) * 2, "{number}: {room}");
    }
    let before = rows.chunks.capacity();
    for number in 0..1_000_000 {
        let at = rows.find(hash(number)).expect("held");
        rows.remove(at);
        let at = rows.find(hash(number + 100_000)).expect_err("new");
        rows.insert(at, hash(number + 100_000), referent(1));
    }
    assert_eq!((rows.len(), rows.chunks.capacity()), (100_000, before));
    for number in 1_000_000..1_100_000 {
        let at = rows.find(hash(number)).expect("held");
        rows.remove(at);
    }
    assert!(rows.chunks.capacity() <= HOMES_MIN + BEYOND);
}

#[test]
fn hashes_that_gather_at_the_end_make_a_table_larger_instead_of_running_over_it() {
    let mut rows = Rows::default();
    let mut model = HashMap::new();
    let at = rows.find(EngineHash(0)).expect_err("new");
    rows.insert(at, EngineHash(0), referent(0));
    model.insert(EngineHash(0), referent(0));
    let last = (1..).map(EngineHash).filter(|hash| {
        // In the last of a thousand parts, whatever the number of homes.
        let many = Rows { homes: 1_000, seeds: rows.seeds, ..Rows::default() };
        many.home(*hash).home == 999
    });
    let last: Vec<EngineHash> = last.take(3 * BEYOND * WIDTH).collect();
    for hash in last {
        let at = rows.find(hash).expect_err("new");
        rows.insert(at, hash, referent(1));
        model.insert(hash, referent(1));
    }
    check(&rows, &model);
}
