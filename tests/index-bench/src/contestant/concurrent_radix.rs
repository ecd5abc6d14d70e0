//! `ConcurrentRadixTreeCompressed` of the crate dynamo-kv-router: what Dynamo's router uses by default.
//!
//! Takes hashes of each block's contents and the engine's hashes, as events of the crate that are handed to a thread
//! which alone writes. Lookups run on the caller's thread and make a map of the answer. The time of writes is the CPU
//! time of that thread: its waiting is not in it, its taking events from the channel is.

use std::hint::black_box;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use dynamo_kv_router::ConcurrentRadixTreeCompressed;
use dynamo_kv_router::indexer::{SyncIndexer, WorkerTask};
use dynamo_kv_router::protocols::{LocalBlockHash, OverlapScores, RouterEvent};
use rustix::thread::{Pid, gettid};

use super::race::{Paced, race};
use super::radix::{hashes, prepare, scores};
use super::{Contestant, Race, Raced, Setting};
use crate::WRITER_CPU;
use crate::block::{Block, Change};
use crate::measure::{clocked, cpu_time, pin};

pub(super) struct ConcurrentRadix {
    tree: Arc<ConcurrentRadixTreeCompressed>,
    tasks: flume::Sender<WorkerTask>,
    writer: Option<JoinHandle<()>>,
    writer_thread: Pid,
    block_size: usize,
    pending: Vec<RouterEvent>,
    prompts: Vec<Vec<LocalBlockHash>>,
    found: OverlapScores,
}

/// Most events on their way to the writer, so that they take no memory worth speaking of.
const TASKS_MAX: usize = 256;

// === impl ConcurrentRadix ===

impl ConcurrentRadix {
    pub(super) fn new(setting: Setting) -> Self {
        let tree = Arc::new(ConcurrentRadixTreeCompressed::new());
        let (tasks, received) = flume::bounded(TASKS_MAX);
        let (tell, told) = std::sync::mpsc::channel();
        let written = Arc::clone(&tree);
        let write = move || {
            pin(WRITER_CPU);
            tell.send(gettid()).expect("somebody waits for it");
            written.worker(received, None).expect("the writer ends when it is told to");
        };
        let writer = Some(std::thread::spawn(write));
        let writer_thread = told.recv().expect("the writer begins");
        Self {
            tree,
            tasks,
            writer,
            writer_thread,
            block_size: setting.block_size,
            pending: Vec::new(),
            prompts: Vec::new(),
            found: OverlapScores::new(),
        }
    }

    /// Waits until everything that was handed over is applied.
    fn settle(&self) {
        let (done, is_done) = tokio::sync::oneshot::channel();
        self.tasks.send(WorkerTask::Flush(done)).expect("the writer is there");
        is_done.blocking_recv().expect("the writer answers");
    }
}

impl Drop for ConcurrentRadix {
    fn drop(&mut self) {
        // An error means that the writer is gone already, which `join` then tells.
        let told = self.tasks.send(WorkerTask::Terminate);
        if let Some(writer) = self.writer.take() {
            let joined = writer.join();
            assert!(std::thread::panicking() || (told.is_ok() && joined.is_ok()), "the writer ended well");
        }
    }
}

impl Contestant for ConcurrentRadix {
    fn name(&self) -> &'static str {
        "dynamo CRTC"
    }

    fn prepare(&mut self, changes: &[Change]) -> Duration {
        let (pending, time) = prepare(changes, self.block_size);
        self.pending = pending;
        time
    }

    fn apply(&mut self) -> Duration {
        let before = cpu_time(self.writer_thread);
        for event in std::mem::take(&mut self.pending) {
            self.tasks.send(WorkerTask::Event(event)).expect("the writer is there");
        }
        self.settle();
        Duration::from_nanos(cpu_time(self.writer_thread) - before)
    }

    fn set_prompts(&mut self, prompts: &[&[Block]]) {
        self.prompts = prompts.iter().map(|blocks| hashes(blocks, self.block_size)).collect();
    }

    fn lookup(&mut self, prompt: usize) -> u64 {
        let (found, nanoseconds) = look(&self.tree, &self.prompts[prompt]);
        self.found = found;
        nanoseconds
    }

    fn answer(&self) -> Vec<(u32, u32)> {
        scores(&self.found)
    }

    fn sweep(&mut self) {
        self.tree.run_cleanup_task();
    }

    fn race(&mut self, setting: &Race<'_>) -> Option<Raced> {
        let events = std::mem::take(&mut self.pending);
        let (tree, prompts, tasks) = (&self.tree, &self.prompts, &self.tasks);
        let hand = |event: RouterEvent| tasks.send(WorkerTask::Event(event)).expect("the writer is there");
        let look = |prompt: usize| {
            let (found, nanoseconds) = look(tree, &prompts[prompt]);
            let blocks = found.scores.values().map(|blocks| u64::from(*blocks)).sum();
            (nanoseconds, (found.scores.len(), blocks))
        };
        let raced = race(setting, Paced::Handed { events, hand }, look);
        self.settle();
        Some(raced)
    }
}

fn look(tree: &ConcurrentRadixTreeCompressed, hashes: &[LocalBlockHash]) -> (OverlapScores, u64) {
    black_box(hashes.iter().fold(0, |sum: u64, hash| sum.wrapping_add(hash.0)));
    clocked(|| tree.find_matches(black_box(hashes), false))
}
