//! The set of tasks: nothing is spawned that nobody waits for, and one that ends early is seen.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The program's long-running tasks. All of them end when `stop` is cancelled; one that ends before is a failure.
#[derive(Debug)]
pub struct Tasks {
    set: JoinSet<&'static str>,
    stop: CancellationToken,
}

/// How a task ended.
#[derive(Debug)]
pub enum TaskEnd {
    Finished(&'static str),
    Panicked(tokio::task::JoinError),
}

impl Tasks {
    pub fn new() -> Self {
        Self { set: JoinSet::new(), stop: CancellationToken::new() }
    }

    /// Cancelled when the drain begins.
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.set.spawn(async move {
            task.await;
            name
        });
    }

    /// The next task to end; None when there are none.
    pub async fn next_end(&mut self) -> Option<TaskEnd> {
        Some(match self.set.join_next().await? {
            Ok(name) => TaskEnd::Finished(name),
            Err(error) => TaskEnd::Panicked(error),
        })
    }

    /// Tells every task to stop and waits for all of them, at most `deadline`. False: some had to be cut.
    pub async fn drain(&mut self, deadline: Duration) -> bool {
        self.stop.cancel();
        let all = async {
            while let Some(end) = self.next_end().await {
                match end {
                    TaskEnd::Finished(task) => tracing::debug!(task, "stopped"),
                    TaskEnd::Panicked(error) => tracing::error!(%error, "a task panicked"),
                }
            }
        };
        let done = tokio::time::timeout(deadline, all).await.is_ok();
        self.set.abort_all();
        done
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_early_or_panics_is_seen() {
        let mut tasks = Tasks::new();
        tasks.spawn("short", async {});
        assert!(matches!(tasks.next_end().await, Some(TaskEnd::Finished("short"))));
        tasks.spawn("broken", async { panic!("for the test") });
        assert!(matches!(tasks.next_end().await, Some(TaskEnd::Panicked(_))));
        assert!(tasks.next_end().await.is_none());
    }

    #[tokio::test]
    async fn a_drain_waits_for_tasks_that_stop_and_cuts_those_that_do_not() {
        let mut tasks = Tasks::new();
        let stop = tasks.stop();
        tasks.spawn("willing", async move { stop.cancelled().await });
        assert!(tasks.drain(Duration::from_secs(20)).await);
        let mut tasks = Tasks::new();
        tasks.spawn("stubborn", std::future::pending());
        assert!(!tasks.drain(Duration::from_millis(20)).await);
    }
}
