//! Every pair of state and input.

use super::*;

const STATES: [&str; 9] =
    ["cold", "cold without replay", "live", "probing", "gap", "replaying", "stale", "resumed", "unproven"];

const INPUTS: [&str; 17] = [
    "connected",
    "disconnected",
    "published next",
    "published later",
    "published earlier",
    "replayed next",
    "replayed later",
    "replayed earlier",
    "replayed last",
    "compared same",
    "compared other",
    "replay ended",
    "emptied",
    "undecodable",
    "contradicted",
    "asleep",
    "tick",
];

/// A sequencer in the state. Where anything was applied, it is batches 0 to 2; a gap lasts to 8.
fn bench(state: &str) -> Bench {
    match state {
        "cold" => Bench::new(true),
        "cold without replay" => {
            let mut bench = Bench::new(false);
            bench.input(Input::Connected);
            bench
        }
        "live" => Bench::live(true),
        "probing" => {
            let mut bench = Bench::live(true);
            assert_eq!(bench.after(5_000), ["ask 2"]);
            bench
        }
        "gap" => {
            let mut bench = Bench::live(true);
            bench.published(8);
            assert_eq!(bench.after(5_000), ["drop replay"]);
            bench
        }
        "replaying" => {
            let mut bench = Bench::live(true);
            assert_eq!(bench.published(8), ["ask 3"]);
            bench
        }
        "stale" => {
            let mut bench = Bench::live(true);
            bench.input(Input::Disconnected);
            bench
        }
        "resumed" => Bench::resumed(2),
        "unproven" => {
            let mut bench = Bench::live(true);
            bench.input(Input::Disconnected);
            assert_eq!(bench.input(Input::Connected), ["ask 2"]);
            bench
        }
        other => panic!("state {other}"),
    }
}

fn input(name: &str) -> Input<Numbered> {
    let published = |seq| Input::Published { seq, batch: Numbered(seq) };
    let replayed = |seq| Input::Replayed { seq, batch: Numbered(seq) };
    match name {
        "connected" => Input::Connected,
        "disconnected" => Input::Disconnected,
        "published next" => published(3),
        "published later" => published(9),
        "published earlier" => published(1),
        "replayed next" => replayed(3),
        "replayed later" => replayed(6),
        "replayed earlier" => replayed(1),
        "replayed last" => replayed(2),
        "compared same" => Input::Compared { is_same: true },
        "compared other" => Input::Compared { is_same: false },
        "replay ended" => Input::ReplayEnded,
        "emptied" => Input::Emptied { seq: 2 },
        "undecodable" => Input::Undecodable { seq: 2 },
        "contradicted" => Input::Contradicted,
        "asleep" => Input::Asleep,
        "tick" => Input::Tick,
        other => panic!("input {other}"),
    }
}

#[test]
fn every_state_answers_every_input_as_told() {
    let mut found = String::new();
    for state in STATES {
        for name in INPUTS {
            let mut bench = bench(state);
            let actions = bench.input(input(name)).join(", ");
            let actions = if actions.is_empty() { "-" } else { &actions };
            let line = format!("{state} | {name} | {actions} | {}\n", bench.trust());
            found.push_str(&line);
        }
    }
    assert_eq!(found, include_str!("table.txt"), "state | input | actions | trust then");
}
