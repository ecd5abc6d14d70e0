//! The real sequencer driving the real index through random schedules of work, evictions, losses, duplicates, reordering,
//! restarts, broken connections, replays with holes and without answers, and ranks that come and go, under a virtual clock.
//!
//! Held at every step against the engines' caches in their plainest form: a live stream is exact for what was applied; any
//! other holds nothing that was not true; what is known to be dead gives no hits; what waits is bounded. And in peace, all
//! that can be known is known, and all memory comes back.
//!
//! `WARMPATH_SCHEDULES=100000 cargo test --release -p warmpath-kv --test schedules` runs more of them than every day;
//! `WARMPATH_SCHEDULES_FROM=SEED` begins at a seed that failed.
#![cfg(test)]

mod cache;
mod check;
mod engine;
mod follower;
mod payload;
mod rank;
mod rng;
mod wire;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use follower::Neglect;
use world::{Tally, run};

/// Schedules of every day: two seconds.
const SCHEDULES: u64 = 500;

/// Schedules in which a neglected duty must show.
const UNTIL_NOTICED: u64 = 2_000;

fn setting(name: &str, default: u64) -> u64 {
    let told = std::env::var_os(name).map(|told| told.to_str().and_then(|told| told.parse().ok()));
    told.map_or(default, |told| told.unwrap_or_else(|| panic!("{name} is no number")))
}

/// Also what panics is told with its seed.
fn outcome(seed: u64, neglect: Option<Neglect>) -> Result<Tally, String> {
    let run = catch_unwind(AssertUnwindSafe(|| run(seed, neglect)));
    run.unwrap_or_else(|_| Err("panicked".to_owned()))
}

#[test]
fn a_live_stream_is_exact_whatever_happens() {
    let from = setting("WARMPATH_SCHEDULES_FROM", 0);
    let mut sum = Tally::default();
    for seed in from..from + setting("WARMPATH_SCHEDULES", SCHEDULES) {
        match outcome(seed, None) {
            Ok(tally) => sum.add(tally),
            Err(why) => panic!("WARMPATH_SCHEDULES_FROM={seed} WARMPATH_SCHEDULES=1 fails: {why}"),
        }
    }
    println!("{sum:#?}");
}

#[test]
fn schedules_do_all_that_they_should() {
    let mut sum = Tally::default();
    (0..SCHEDULES).for_each(|seed| sum.add(outcome(seed, None).expect("no schedule fails")));
    let Tally {
        gaps,
        restarts,
        reconnects,
        resumed,
        tails,
        lost,
        failed_replays,
        no_room,
        rank_changes,
        exact,
        ..
    } = sum;
    for often in
        [gaps, restarts, reconnects, resumed, tails, lost, failed_replays, no_room, rank_changes, exact]
    {
        assert!(often >= 10, "{sum:#?}");
    }
}

/// A check that notices nothing would be no check.
#[test]
fn every_neglected_duty_is_noticed() {
    for duty in [
        Neglect::ClearsAfterRestart,
        Neglect::ClearsAfterLoss,
        Neglect::LateAnswers,
        Neglect::OldMessages,
        Neglect::Trust,
        Neglect::Undecodable,
        Neglect::Emptied,
        Neglect::Numbers,
        Neglect::Proof,
    ] {
        let noticed = (0..UNTIL_NOTICED).find(|seed| outcome(*seed, Some(duty)).is_err());
        assert!(noticed.is_some(), "{duty:?} was never noticed");
    }
}
