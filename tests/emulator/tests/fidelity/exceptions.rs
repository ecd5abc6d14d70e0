//! What the emulator does not reproduce.

/// Steps of a scenario that come out differently, and why.
pub(crate) struct Exception {
    scenario: &'static str,
    steps: &'static [&'static str],
    #[expect(dead_code, reason = "for the reader")]
    reason: &'static str,
}

const GAP: &str =
    "the messages between the scenario before and this one were not kept, so the pool is not the same";
const REPLAY: [&str; 5] = ["req-0", "req-1", "req-2", "req-3", "req-4"];

const EXCEPTIONS: [Exception; 3] = [
    Exception { scenario: "vllm-0.16.0/scen/replay", steps: &REPLAY, reason: GAP },
    Exception { scenario: "vllm-0.23.0/scen/replay", steps: &REPLAY, reason: GAP },
    Exception {
        scenario: "vllm-0.32.0/hybrid/hybrid",
        // Not "a-1" and "extend again": full hits, which publish nothing in any model.
        steps: &[
            "a-0",
            "extend",
            "shared first half",
            "fill-0",
            "fill-1",
            "fill-2",
            "fill-3",
            "fill-4",
            "fill-5",
            "fill-6",
            "fill-7",
            "a after fill",
            "generate",
        ],
        reason: "a model with a sliding-window group and a full-attention group; the emulator has one full-attention group",
    },
];

/// All (scenario, step) pairs of the table.
pub(crate) fn listed() -> Vec<(String, String)> {
    let pairs =
        |e: &Exception| e.steps.iter().map(|s| (e.scenario.to_owned(), (*s).to_owned())).collect::<Vec<_>>();
    EXCEPTIONS.iter().flat_map(pairs).collect()
}
