//! Long computations beside the runtime: so many at a time, so many waiting, none past its deadline.
//!
//! Hot path: one hop to a blocking thread and back. What is given up on while it waits is never begun.
//!
//! What runs cannot be stopped, and a job may take seconds after everybody stopped waiting for it. So there are two
//! lanes with threads of their own: however many long jobs come, the quick ones do not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

/// Bytes of prompts that may wait or be worked on at the same time, whatever their number.
const BYTES_MAX: usize = 256 << 20;

/// The share of the threads that long jobs get: one in so many, at least one.
const LONG_SHARE: usize = 4;

/// Which jobs a job may have to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Done in about the time that an answer may take.
    Quick,
    /// May take far longer.
    Long,
}

/// A bounded pool.
#[derive(Debug)]
pub(super) struct Pool {
    quick: Arc<Semaphore>,
    long: Arc<Semaphore>,
    admitted: Arc<Admitted>,
    jobs_max: usize,
}

#[derive(Debug, Default)]
struct Admitted {
    jobs: AtomicUsize,
    bytes: AtomicUsize,
}

/// A place in the pool; leaving it is its drop.
struct Admission {
    admitted: Arc<Admitted>,
    bytes: usize,
}

/// Why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum PoolError {
    #[error("too many jobs or bytes are waiting")]
    Busy,
    #[error("the deadline passed")]
    Late,
    #[error("the job panicked")]
    Panicked,
}

// === impl Pool ===

impl Pool {
    /// `threads` jobs at a time, at least one in each lane; `queue` more may wait.
    pub(super) fn new(threads: usize, queue: usize) -> Self {
        let long = (threads / LONG_SHARE).max(1);
        let quick = threads.saturating_sub(long).max(1);
        Self {
            quick: Arc::new(Semaphore::new(quick)),
            long: Arc::new(Semaphore::new(long)),
            admitted: Arc::default(),
            jobs_max: threads.saturating_add(queue),
        }
    }

    /// Runs `job`, whose input has `bytes`, until `deadline`. A job that is running when the deadline passes goes on to
    /// its end, still counted, but its result is dropped.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        bytes: usize,
        deadline: Option<Instant>,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(PoolError::Late);
        }
        let admission = self.admit(bytes)?;
        let threads = match lane {
            Lane::Quick => self.quick.clone(),
            Lane::Long => self.long.clone(),
        };
        let work = async move {
            let permit = threads.acquire_owned().await.map_err(|_| PoolError::Late)?;
            let joined = spawn_blocking(move || {
                let result = job();
                drop((permit, admission));
                result
            });
            joined.await.map_err(|_| PoolError::Panicked)
        };
        match deadline {
            Some(deadline) => timeout_at(deadline, work).await.map_err(|_| PoolError::Late)?,
            None => work.await,
        }
    }

    /// Jobs waiting or running.
    #[cfg(test)]
    pub(super) fn jobs(&self) -> usize {
        self.admitted.jobs.load(Ordering::Relaxed)
    }

    fn admit(&self, bytes: usize) -> Result<Admission, PoolError> {
        let admission = Admission { admitted: self.admitted.clone(), bytes };
        let jobs = self.admitted.jobs.fetch_add(1, Ordering::Relaxed);
        let waiting = self.admitted.bytes.fetch_add(bytes, Ordering::Relaxed);
        // One job is always taken, however large: the message limit bounds it.
        if jobs >= self.jobs_max || (jobs > 0 && waiting.saturating_add(bytes) > BYTES_MAX) {
            return Err(PoolError::Busy);
        }
        Ok(admission)
    }
}

// === impl Admission ===

impl Drop for Admission {
    fn drop(&mut self) {
        self.admitted.jobs.fetch_sub(1, Ordering::Relaxed);
        self.admitted.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_full_pool_is_busy_a_slow_one_is_late_and_both_recover() {
        let pool = Arc::new(Pool::new(1, 1));
        let (release, blocked) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(Lane::Quick, 1, None, move || blocked.recv().is_ok()).await }
        });
        while pool.jobs() < 1 {
            tokio::task::yield_now().await;
        }
        let soon = Instant::now() + Duration::from_millis(20);
        let ran = Arc::new(AtomicBool::new(false));
        let late = {
            let ran = ran.clone();
            move || ran.store(true, Ordering::Relaxed)
        };
        assert_eq!(pool.run(Lane::Quick, 1, Some(soon), late).await, Err(PoolError::Late));
        let waiting = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(Lane::Quick, 1, None, || 7).await }
        });
        while pool.jobs() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.run(Lane::Quick, 1, None, || ()).await, Err(PoolError::Busy));
        release.send(()).unwrap();
        assert_eq!(first.await.unwrap(), Ok(true));
        assert_eq!(waiting.await.unwrap(), Ok(7));
        assert_eq!(pool.jobs(), 0);
        assert!(!ran.load(Ordering::Relaxed), "what was given up on is never begun");
    }

    #[tokio::test]
    async fn long_jobs_keep_no_quick_one_waiting() {
        for threads in [1, 2, 8] {
            let pool = Arc::new(Pool::new(threads, 64));
            let mut releases = Vec::new();
            for _ in 0..16 {
                let (release, blocked) = mpsc::channel::<()>();
                releases.push(release);
                let pool = pool.clone();
                tokio::spawn(async move { pool.run(Lane::Long, 1, None, move || blocked.recv()).await });
            }
            while pool.jobs() < 16 {
                tokio::task::yield_now().await;
            }
            let soon = Instant::now() + Duration::from_secs(5);
            assert_eq!(pool.run(Lane::Quick, 1, Some(soon), || 7).await, Ok(7), "{threads} threads");
        }
    }

    #[tokio::test]
    async fn bytes_are_limited_too_but_one_job_always_fits() {
        let pool = Pool::new(4, 4);
        assert_eq!(pool.run(Lane::Quick, BYTES_MAX + 1, None, || 1).await, Ok(1));
        let _first = pool.admit(BYTES_MAX).unwrap();
        assert!(matches!(pool.admit(1), Err(PoolError::Busy)));
    }
}
