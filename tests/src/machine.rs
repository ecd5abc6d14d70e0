//! What of its machine a process under test can be made to see otherwise: the clock on the wall, and the room on its disk.
//!
//! The clock jumps by a library that is loaded before all others (`machine/wall_clock.c`, built by `tests/setup.sh`).
//! The disk is full by the kernel's limit on the size of files, which holds for one process and those that it starts, at
//! any time and without any rights: to write to a file then fails as it does where no room is left, by another number
//! (`EFBIG`, not `ENOSPC`). Sockets and pipes are not touched.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::paths;

/// One for each process, whose restarts find it as it was left.
#[derive(Debug)]
pub struct Machine {
    clock: PathBuf,
    disk_is_full: AtomicBool,
}

/// Starts what follows with no room on its disk, until it is told otherwise.
const WITHOUT_ROOM: [&str; 4] = ["sh", "-c", r#"ulimit -S -f 0 && exec "$0" "$@""#, "env"];

// === impl Machine ===

impl Machine {
    /// With the right time, and room on its disk. `dir` takes the file of its clock.
    pub fn new(name: &str, dir: &Path) -> Result<Arc<Self>> {
        let clock = dir.join(format!("{name}.clock"));
        std::fs::write(&clock, 0_i64.to_ne_bytes())
            .with_context(|| format!("cannot write {}", clock.display()))?;
        Ok(Arc::new(Self { clock, disk_is_full: AtomicBool::new(false) }))
    }

    /// Sets the clock so many seconds ahead of the right time, or behind it.
    pub fn set_clock(&self, ahead_s: i64) -> Result<()> {
        // In place, because it is mapped.
        Ok(File::options().write(true).open(&self.clock)?.write_all_at(&ahead_s.to_ne_bytes(), 0)?)
    }

    /// Leaves no room on the disk, or as much as there is: for this process, and for those that are started in its place.
    pub(crate) fn fill_disk(&self, process: Pid, is_full: bool) -> Result<()> {
        self.disk_is_full.store(is_full, Ordering::Relaxed);
        let maximum = getrlimit(Resource::Fsize).maximum;
        let current = if is_full { Some(0) } else { maximum };
        prlimit(Some(process), Resource::Fsize, Rlimit { current, maximum })
            .context("cannot set the limit")?;
        Ok(())
    }

    /// What to start in place of `program` for it to run here. The kernel would end a process that writes above its limit,
    /// unless told not to.
    pub(crate) fn command(&self, program: &Path) -> Result<Vec<OsString>> {
        let of = |name: &str, path: &Path| {
            let mut setting = OsString::from(format!("{name}="));
            setting.push(path);
            setting
        };
        let env: &[&str] = if self.disk_is_full.load(Ordering::Relaxed) { &WITHOUT_ROOM } else { &["env"] };
        let mut command: Vec<OsString> = env.iter().map(Into::into).collect();
        command.extend([
            "--ignore-signal=XFSZ".into(),
            of("LD_PRELOAD", &paths::wall_clock()?),
            of("WARMPATH_WALL_CLOCK", &self.clock),
            program.into(),
        ]);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::fresh_dir;
    use crate::eventually::{eventually, seen_if};
    use crate::process::Process;

    const DAY_S: i64 = 86_400;

    /// A shell that writes the time of the clock on the wall until it cannot, then says so by a file without anything in it,
    /// and writes again when it can.
    const SCRIPT: &str =
        r#"while date +%s; do sleep 0.02; done; : > "$0"; until echo again; do sleep 0.02; done"#;

    #[tokio::test]
    async fn the_clock_of_a_process_jumps_and_its_disk_fills_while_it_runs() {
        let dir = fresh_dir(&paths::target().join("e2e/machine"));
        let machine = Machine::new("clock", &dir).unwrap();
        let failed = dir.join("failed");
        let args = ["-c".as_ref(), SCRIPT.as_ref(), failed.as_os_str()];
        let process = Process::start_on(Some(machine), "clock", Path::new("bash"), args, &dir).unwrap();
        let right = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
        let ahead = async |wanted: i64| {
            eventually("the clock has jumped", async || {
                let log = process.log();
                let last = log.lines().last().and_then(|line| line.parse::<i64>().ok()).unwrap_or_default();
                seen_if((last - right() - wanted).abs() < 60, format!("{last}, asked for {wanted}"))
            })
            .await
            .unwrap();
        };
        ahead(0).await;
        for seconds in [DAY_S, -DAY_S, 3600, 0] {
            process.set_clock(seconds).unwrap();
            ahead(seconds).await;
        }
        process.fill_disk(true).unwrap();
        eventually("it cannot write", async || seen_if(failed.exists(), "it writes")).await.unwrap();
        assert!(!process.log().contains("again"));
        process.fill_disk(false).unwrap();
        eventually("it can write", async || seen_if(process.log().ends_with("again\n"), process.log()))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn who_starts_on_a_full_disk_finds_it_full_until_there_is_room() {
        let dir = fresh_dir(&paths::target().join("e2e/full_machine"));
        let machine = Machine::new("full", &dir).unwrap();
        let failed = dir.join("failed");
        let start = || {
            let script = r#"until echo written; do : > "$0"; sleep 0.02; done; sleep 60"#;
            let args = ["-c".as_ref(), script.as_ref(), failed.as_os_str()];
            Process::start_on(Some(machine.clone()), "full", Path::new("bash"), args, &dir).unwrap()
        };
        let says = async |process: &Process, what: &str| {
            eventually("it can write", async || seen_if(process.log() == what, process.log())).await.unwrap();
        };
        let mut process = start();
        says(&process, "written\n").await;
        process.fill_disk(true).unwrap();
        process.kill().unwrap();
        process = start();
        eventually("it cannot write", async || seen_if(failed.exists(), "it has not tried")).await.unwrap();
        assert_eq!(process.log(), "written\n");
        process.fill_disk(false).unwrap();
        says(&process, "written\nwritten\n").await;
    }

    #[test]
    fn who_has_no_machine_of_its_own_is_left_as_it_is() {
        let dir = fresh_dir(&paths::target().join("e2e/no_machine"));
        let process = Process::start("sleeper", Path::new("sleep"), ["60"], &dir).unwrap();
        assert!(process.set_clock(1).is_err() && process.fill_disk(true).is_err());
    }
}
