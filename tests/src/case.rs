//! Running one case: a stack, what the case does with it, what must hold afterwards, and all logs where it fails.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;

use crate::audit::audit;
use crate::paths;
use crate::stack::{AfterCase, Stack, StackBuilder};

/// Last lines of each log that are printed when a case fails; the whole logs stay where they are.
const LOG_LINES: usize = 60;

/// Starts `stack`, runs `case` with it and checks what must hold after every case. Panics where anything is wrong,
/// after printing every log.
pub fn case(stack: Result<StackBuilder>, case: impl AsyncFnOnce(&mut Stack) -> Result<()>) {
    case_that_leaves(AfterCase::default(), stack, case);
}

/// The same for a case that leaves something broken on purpose.
pub fn case_that_leaves(
    expected: AfterCase,
    stack: Result<StackBuilder>,
    case: impl AsyncFnOnce(&mut Stack) -> Result<()>,
) {
    let dir = case_dir();
    let run = async {
        let mut stack = stack?.start(&dir).await?;
        case(&mut stack).await?;
        let complaints = stack.complaints(&expected);
        ensure!(complaints.is_empty(), "after the case: {}", complaints.join("; "));
        let audited = audit(&stack.engines, &stack.indexers).await.context("after the case")?;
        std::fs::write(dir.join("audit.txt"), audited.join("\n"))?;
        Ok(())
    };
    let outcome = match runtime() {
        Ok(runtime) => runtime.block_on(AssertUnwindSafe(run).catch_unwind()),
        Err(error) => Ok(Err(error)),
    };
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            print_logs(&dir);
            // The test harness shows a panic's message; there is no other way to fail with one.
            resume_unwind(Box::new(report(&error)));
        }
        Err(panic) => {
            print_logs(&dir);
            resume_unwind(panic);
        }
    }
}

#[expect(clippy::print_stderr, reason = "the test harness captures it and shows it with the failure")]
fn report(error: &anyhow::Error) -> String {
    let report = format!("{error:#}");
    eprintln!("the case failed: {report}");
    report
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().context("no runtime")
}

/// An empty folder for this case, named like the test that runs it.
fn case_dir() -> PathBuf {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("case").replace("::", "/");
    fresh_dir(&paths::target().join("e2e").join(name))
}

/// Makes an empty folder. Where that fails, the first process that writes there says so.
pub fn fresh_dir(dir: &Path) -> PathBuf {
    drop(std::fs::remove_dir_all(dir));
    drop(std::fs::create_dir_all(dir));
    dir.canonicalize().unwrap_or_else(|_| dir.to_owned())
}

/// Prints the end of every log in `dir`.
#[expect(clippy::print_stderr, reason = "the test harness captures it and shows it with the failure")]
pub fn print_logs(dir: &Path) {
    let mut logs: Vec<PathBuf> =
        dir.read_dir().into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.sort();
    for log in logs {
        let text =
            std::fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let skipped = lines.len().saturating_sub(LOG_LINES);
        eprintln!("=== {} ({skipped} earlier lines there)", log.display());
        for line in lines.iter().skip(skipped) {
            eprintln!("{line}");
        }
    }
}
