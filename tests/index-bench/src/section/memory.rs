//! Bytes per membership: what a structure has allocated after everything was stored, engine hashes included.

use super::{BLOCK_SIZE, Effort};
use crate::alloc::growth;
use crate::contestant::{self, Setting};
use crate::report::{Row, Section};
use crate::workload::{Contents, Shape, Size, Workload};

/// Tables double: what is left free in them depends on where between two powers of two the number of entries lies.
const MEMBERSHIPS: [usize; 5] = [700_000, 850_000, 1_000_000, 1_200_000, 1_400_000];

/// Most bytes of ours.
const BARS: [(Shape, f64); 3] = [(Shape::Unique, 45.0), (Shape::Shared, 40.0), (Shape::Full, 40.0)];

const WORKERS: [usize; 2] = [8, 64];

pub(crate) fn run(effort: Effort) -> Section {
    let mut rows = Vec::new();
    for (shape, bar) in BARS {
        for workers in WORKERS {
            for memberships in MEMBERSHIPS {
                let size = Size { shape, workers, length: 192, memberships: effort.scaled(memberships) };
                rows.push(of_size(size, bar));
            }
        }
    }
    let about =
        "MEMORY: bytes allocated per (worker, block) held, prompts of 192 blocks, each stored in one event";
    Section { name: "memory", about: about.to_owned(), rows }
}

fn of_size(size: Size, bar: f64) -> Row {
    let workload = Workload::new(size, &mut Contents::default());
    let setting = Setting { workers: size.workers, block_size: BLOCK_SIZE };
    let bytes = |which| {
        let build = || {
            let mut one = contestant::one(which, setting);
            contestant::apply_all(&mut *one, workload.changes());
            one
        };
        let (_, bytes) = growth(build);
        Some(bytes as f64 / workload.memberships as f64)
    };
    let millions = size.memberships as f64 / 1e6;
    let label = format!("{}, {} workers, {millions:.2} M", size.shape, size.workers);
    Row::new(label, "B", (0..contestant::COUNT).map(bytes).collect()).with_bar(bar)
}
