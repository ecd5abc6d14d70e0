//! The shell around one [`Engine`]: a task that owns it, feeds it requests and real time, and delivers its effects.
//!
//! In come [`Command`]s through a bounded queue; out go tokens to the request's own channel, event batches to the
//! publisher and figures to [`RankStats`]. Nobody else touches the engine.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::core::{Effects, Engine, Lora, Request, RequestId, Snapshot, SubmitError, Token};
use crate::faults::SharedFaults;
use crate::histogram::Histogram;
use crate::publisher::Publisher;

/// Commands waiting for the task.
const QUEUE_MAX: usize = 1024;

/// A prompt to serve, without what only the rank knows.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) prompt: Vec<u32>,
    pub(crate) output: Vec<u32>,
    pub(crate) salt: Option<String>,
    pub(crate) lora: Option<Lora>,
    pub(crate) session: Option<String>,
    pub(crate) reads_cache: bool,
    pub(crate) reports_hits: bool,
}

/// Why a job was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RankError {
    #[error(transparent)]
    Refused(#[from] SubmitError),
    #[error("the engine is shutting down")]
    Gone,
}

enum Command {
    Submit { job: Job, tokens: mpsc::Sender<Token>, taken: oneshot::Sender<Result<RequestId, SubmitError>> },
    Abort(RequestId),
    Reset(oneshot::Sender<bool>),
    Snapshot(oneshot::Sender<Snapshot>),
}

/// Figures of a rank, renewed after everything it does.
#[derive(Debug, Clone)]
pub(crate) struct RankStats {
    /// Without the cached blocks.
    pub(crate) summary: Snapshot,
    /// Real seconds from arrival to the first token.
    pub(crate) ttft: Histogram,
    /// Batches given to the publisher.
    pub(crate) batches: u64,
    /// Batches lost because its queue was full.
    pub(crate) batches_lost: u64,
}

/// The way to a rank's task.
#[derive(Debug, Clone)]
pub(crate) struct RankHandle {
    commands: mpsc::Sender<Command>,
    stats: Arc<Mutex<RankStats>>,
}

/// A request being served; dropping it before its last token aborts it.
#[derive(Debug)]
pub(crate) struct Ticket {
    id: RequestId,
    commands: mpsc::Sender<Command>,
    tokens: mpsc::Receiver<Token>,
    finished: bool,
}

// === impl RankHandle ===

impl RankHandle {
    /// Starts the task of one rank; it ends with `cancel`, and the publisher with it.
    pub(crate) fn start(
        rank: RankParts,
        cancel: CancellationToken,
    ) -> (Self, impl Future<Output = Option<Publisher>>) {
        let (commands, input) = mpsc::channel(QUEUE_MAX);
        let stats = RankStats {
            summary: rank.engine.summary(),
            ttft: Histogram::default(),
            batches: 0,
            batches_lost: 0,
        };
        let stats = Arc::new(Mutex::new(stats));
        let task = RankTask { parts: rank, next_id: 0, open: HashMap::new(), stats: Arc::clone(&stats) };
        (Self { commands, stats }, task.run(input, cancel))
    }

    /// Queues a job.
    pub(crate) async fn submit(&self, job: Job) -> Result<Ticket, RankError> {
        // One slot per token: the rank never has to wait for a slow client.
        let (tokens, receiver) = mpsc::channel(job.output.len().max(1));
        let (taken, answer) = oneshot::channel();
        self.send(Command::Submit { job, tokens, taken }).await?;
        let id = answer.await.map_err(|_| RankError::Gone)??;
        Ok(Ticket { id, commands: self.commands.clone(), tokens: receiver, finished: false })
    }

    /// Drops the prefix cache; false if it is in use.
    pub(crate) async fn reset_prefix_cache(&self) -> Result<bool, RankError> {
        let (done, answer) = oneshot::channel();
        self.send(Command::Reset(done)).await?;
        answer.await.map_err(|_| RankError::Gone)
    }

    /// The rank's inside, with every cached block.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot, RankError> {
        let (done, answer) = oneshot::channel();
        self.send(Command::Snapshot(done)).await?;
        answer.await.map_err(|_| RankError::Gone)
    }

    /// Current figures.
    pub(crate) fn stats(&self) -> RankStats {
        self.stats.lock().clone()
    }

    async fn send(&self, command: Command) -> Result<(), RankError> {
        self.commands.send(command).await.map_err(|_| RankError::Gone)
    }
}

// === impl Ticket ===

impl Ticket {
    /// The next token; `None` after the last, or when the rank is gone.
    pub(crate) async fn next(&mut self) -> Option<Token> {
        let token = self.tokens.recv().await;
        self.finished = token.as_ref().is_none_or(|token| token.last);
        token
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.finished && self.commands.try_send(Command::Abort(self.id)).is_err() {
            // The rank notices the closed channel with the next token.
            tracing::debug!("abort not queued");
        }
    }
}

/// What a rank's task owns.
pub(crate) struct RankParts {
    pub(crate) engine: Engine,
    pub(crate) publisher: Option<Publisher>,
    pub(crate) clock: Clock,
    pub(crate) faults: Arc<SharedFaults>,
}

struct Open {
    since: Instant,
    tokens: mpsc::Sender<Token>,
}

struct RankTask {
    parts: RankParts,
    next_id: u64,
    open: HashMap<RequestId, Open>,
    stats: Arc<Mutex<RankStats>>,
}

// === impl RankTask ===

impl RankTask {
    async fn run(
        mut self,
        mut input: mpsc::Receiver<Command>,
        cancel: CancellationToken,
    ) -> Option<Publisher> {
        loop {
            let wake = self.parts.engine.next_wake().map(|at| self.parts.clock.instant(at));
            // All arms are cancel-safe: a lost race loses neither a command nor a deadline.
            tokio::select! {
                () = cancel.cancelled() => return self.parts.publisher,
                command = input.recv() => match command {
                    Some(command) => self.take(command),
                    None => return self.parts.publisher,
                },
                () = sleep_until(wake) => {}
            }
            while let Ok(command) = input.try_recv() {
                self.take(command);
            }
            self.parts.engine.set_slowdown(self.parts.faults.slow());
            let effects = self.parts.engine.step(self.parts.clock.now());
            self.deliver(effects);
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Submit { job, tokens, taken } => {
                let answer = self.submit(job, tokens);
                if let Err(Ok(id)) = taken.send(answer) {
                    self.abort(id);
                }
            }
            Command::Abort(id) => self.abort(id),
            Command::Reset(done) => {
                let reset = self.parts.engine.reset_prefix_cache();
                if done.send(reset).is_err() {
                    tracing::debug!("nobody waits for the reset");
                }
            }
            Command::Snapshot(done) => {
                if done.send(self.parts.engine.snapshot()).is_err() {
                    tracing::debug!("nobody waits for the snapshot");
                }
            }
        }
    }

    fn submit(&mut self, job: Job, tokens: mpsc::Sender<Token>) -> Result<RequestId, SubmitError> {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.parts.engine.submit(Request {
            id,
            arrived: self.parts.clock.now(),
            prompt: job.prompt,
            output: job.output,
            salt: job.salt,
            lora: job.lora,
            embeds: Vec::new(),
            session: job.session,
            reads_cache: job.reads_cache,
            reports_hits: job.reports_hits,
        })?;
        self.open.insert(id, Open { since: Instant::now(), tokens });
        Ok(id)
    }

    fn abort(&mut self, id: RequestId) {
        if self.open.remove(&id).is_some() {
            self.parts.engine.abort(id);
        }
    }

    fn deliver(&mut self, effects: Effects) {
        let (batches, mut lost) = (effects.batches.len() as u64, 0);
        for batch in effects.batches {
            if let Some(publisher) = &self.parts.publisher
                && !publisher.publish(batch.events)
            {
                lost += 1;
            }
        }
        let mut first_tokens = Vec::new();
        for token in effects.tokens {
            let (id, last) = (token.request, token.last);
            let Some(open) = self.open.get(&id) else { continue };
            if token.index == 0 {
                first_tokens.push(open.since.elapsed().as_secs_f64());
            }
            let gone = open.tokens.try_send(token).is_err();
            if last {
                self.open.remove(&id);
            } else if gone {
                self.abort(id);
            }
        }
        let mut stats = self.stats.lock();
        stats.summary = self.parts.engine.summary();
        stats.batches += batches;
        stats.batches_lost += lost;
        first_tokens.into_iter().for_each(|seconds| stats.ttft.observe(seconds));
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
