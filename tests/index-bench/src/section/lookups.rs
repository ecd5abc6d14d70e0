//! How long a lookup takes while nothing changes.

use super::{Effort, holding};
use crate::block::{Block, Random};
use crate::contestant::{Contestant, turns};
use crate::measure::{Samples, Spread, median_spread};
use crate::report::{Row, Section};
use crate::workload::{Contents, Shape, Size, Workload};

/// Lookups of one contestant in one round.
const LOOKUPS: usize = 20_000;

/// Prompts that are known in part, or not at all.
const OTHER_PROMPTS: usize = 2_000;

/// Answers checked against what the workload says, of each shape; all are checked against each other.
const CHECKED: usize = 200;

/// Most nanoseconds of half of the lookups: with a million memberships, and with ten million.
const BARS: [(usize, f64); 2] = [(1_000_000, 350.0), (10_000_000, 1_300.0)];

/// Which of the prompts are looked up.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    begin: usize,
    end: usize,
}

fn sizes() -> Vec<Size> {
    let mut sizes = Vec::new();
    for shape in Shape::ALL {
        for (workers, length) in [(8, 192), (64, 192), (512, 192), (8, 2_000), (64, 2_000), (512, 2_000)] {
            sizes.push(Size { shape, workers, length, memberships: 1_000_000 });
        }
    }
    for shape in [Shape::Unique, Shape::Shared] {
        for workers in [8, 64] {
            sizes.push(Size { shape, workers, length: 192, memberships: 8_000_000 });
        }
    }
    for (workers, length) in [(8, 192), (64, 192), (512, 192), (8, 2_000), (64, 2_000), (512, 2_000)] {
        sizes.push(Size { shape: Shape::Mixed, workers, length, memberships: 10_000_000 });
    }
    sizes
}

/// `shapes`: those to measure; none means all.
pub(crate) fn run(effort: Effort, shapes: &[Shape]) -> Section {
    let mut rows = Vec::new();
    for size in sizes().into_iter().filter(|size| shapes.is_empty() || shapes.contains(&size.shape)) {
        let scaled = Size { memberships: effort.scaled(size.memberships), ..size };
        let bar = BARS.iter().find(|(memberships, _)| *memberships == size.memberships).map(|(_, bar)| *bar);
        rows.extend(of_size(scaled, bar, effort));
    }
    let about = "LOOKUPS, nothing changing: nanoseconds from the call to the answer, prompts in random order; median \
                 over the rounds of each round's p50 and p99"
        .to_owned();
    Section { name: "lookups", about, rows }
}

fn of_size(size: Size, bar: Option<f64>, effort: Effort) -> Vec<Row> {
    let mut contents = Contents::default();
    let workload = Workload::new(size, &mut contents);
    let mut contestants = holding(&workload, size.workers);
    let others = OTHER_PROMPTS.min(workload.prompts.len());
    let partly = workload.partly_known(others, &mut contents);
    let unknown = workload.unknown(others, &mut contents);
    let whole = workload.prompts.iter().map(|prompt| &*prompt.blocks);
    let prompts: Vec<&[Block]> =
        whole.chain(partly.iter().map(Vec::as_slice)).chain(unknown.iter().map(Vec::as_slice)).collect();
    for contestant in &mut contestants {
        contestant.set_prompts(&prompts);
    }
    check(&workload, &mut contestants, prompts.len());
    let (all, partly_end) = (workload.prompts.len(), workload.prompts.len() + others);
    let kinds = [
        Kind { name: "held", begin: 0, end: all },
        Kind { name: "held in part", begin: all, end: partly_end },
        Kind { name: "unknown", begin: partly_end, end: partly_end + others },
    ];
    // Prompts that are not held take other ways, which depend little on the size: once per shape is enough.
    let count = if size.workers == 64 && size.memberships <= 1_000_000 { kinds.len() } else { 1 };
    kinds.iter().take(count).flat_map(|kind| of_kind(size, *kind, bar, effort, &mut contestants)).collect()
}

/// All answers must be equal, and some of them are compared with what they must be.
fn check(workload: &Workload, contestants: &mut [Box<dyn Contestant>], prompts: usize) {
    let step = workload.prompts.len().div_ceil(CHECKED);
    for prompt in 0..prompts {
        let answer = |contestant: &mut Box<dyn Contestant>| {
            contestant.lookup(prompt);
            contestant.answer()
        };
        let answers: Vec<_> = contestants.iter_mut().map(answer).collect();
        for (contestant, answer) in contestants.iter().zip(&answers) {
            assert_eq!(*answer, answers[0], "{} and ours answer alike", contestant.name());
        }
        if prompt % step == 0
            && let Some(held) = workload.prompts.get(prompt)
        {
            assert_eq!(answers[0], workload.expected(held), "the answer is right");
        }
    }
}

fn of_kind(
    size: Size,
    kind: Kind,
    bar: Option<f64>,
    effort: Effort,
    contestants: &mut [Box<dyn Contestant>],
) -> [Row; 2] {
    let mut rounds: Vec<Vec<Spread>> = vec![Vec::new(); contestants.len()];
    for round in 0..effort.rounds {
        let mut random = Random::new(round as u64);
        let prompt = |_| kind.begin + random.below(kind.end - kind.begin);
        let order: Vec<usize> = (0..effort.scaled(LOOKUPS)).map(prompt).collect();
        for turn in turns(round, contestants.len()) {
            let contestant = &mut contestants[turn];
            let samples: Samples = order.iter().map(|prompt| contestant.lookup(*prompt)).collect();
            rounds[turn].push(samples.spread());
        }
    }
    let spreads: Vec<Spread> = rounds.iter().map(|rounds| median_spread(rounds)).collect();
    let Size { shape, workers, length, memberships } = size;
    let millions = memberships as f64 / 1e6;
    let label = format!("{millions} M, {shape}, {workers} workers, {length} blocks, {}", kind.name);
    let row = |figure: &str, of: fn(&Spread) -> f64| {
        Row::new(format!("{label} {figure}"), "ns", spreads.iter().map(|spread| Some(of(spread))).collect())
    };
    let p50 = row("p50", |spread| spread.p50);
    let p50 = match bar {
        Some(bar) if kind.begin == 0 => p50.with_bar(bar),
        _ => p50,
    };
    [p50, row("p99", |spread| spread.p99)]
}
