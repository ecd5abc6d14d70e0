//! A child process: its output goes to a file, and it never outlives us.
//!
//! A case ends processes by the id it was given at their start and by nothing else. Should the whole test run be
//! killed, the kernel kills them (`setpriv --pdeathsig`). That signal is bound to the *thread* that started the child,
//! so one thread that lives as long as the program starts them all.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::machine::Machine;

/// How often a process that was told to end is looked at.
const EXIT_POLL: Duration = Duration::from_millis(5);

/// Whoever is told to stop does so in this time.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// A started program.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    machine: Option<Arc<Machine>>,
}

impl Process {
    /// Starts `program`; both of its outputs are appended to `<log_dir>/<name>.log`.
    pub fn start<A: AsRef<std::ffi::OsStr>>(
        name: &str,
        program: &Path,
        args: impl IntoIterator<Item = A>,
        log_dir: &Path,
    ) -> Result<Self> {
        Self::start_on(None, name, program, args, log_dir)
    }

    /// The same on a machine of its own, where there is one.
    pub fn start_on<A: AsRef<std::ffi::OsStr>>(
        machine: Option<Arc<Machine>>,
        name: &str,
        program: &Path,
        args: impl IntoIterator<Item = A>,
        log_dir: &Path,
    ) -> Result<Self> {
        let log = log_dir.join(format!("{name}.log"));
        let open = || File::options().create(true).append(true).open(&log);
        let out = open().with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        match &machine {
            Some(machine) => command.args(machine.command(program)?),
            None => command.arg(program),
        };
        command.args(args);
        command.current_dir(crate::paths::root()).stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
        let child = spawn(command).with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { name: name.to_owned(), child, log, machine })
    }

    /// Its name in messages, which is that of its log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Everything written so far, by earlier processes of the same name too.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The machine of its own that it runs on, for those that are started in its place.
    pub fn machine(&self) -> Option<Arc<Machine>> {
        self.machine.clone()
    }

    /// Sets the clock of its machine so many seconds ahead of the right time, or behind it.
    pub fn set_clock(&self, ahead_s: i64) -> Result<()> {
        self.own_machine()?.set_clock(ahead_s)
    }

    /// Leaves no room on the disk of its machine, or as much as there is.
    pub fn fill_disk(&self, is_full: bool) -> Result<()> {
        // Without a machine of its own it would be ended by its next line.
        self.own_machine()?
            .fill_disk(self.pid()?, is_full)
            .with_context(|| format!("the disk of {}", self.name))
    }

    fn own_machine(&self) -> Result<&Machine> {
        self.machine.as_deref().with_context(|| format!("{} has no machine of its own", self.name))
    }

    /// Memory that it has in use, in bytes.
    pub fn resident_bytes(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib << 10)
    }

    /// Has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The code that it ended with; None while it runs, and where a signal ended it.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().ok().flatten()?.code()
    }

    /// Tells it to read its configuration again, where it does so.
    pub fn hang_up(&self) -> Result<()> {
        self.send(Signal::HUP)
    }

    /// Holds it where it is: its sockets stay open and answer nothing from now on.
    pub fn freeze(&self) -> Result<()> {
        self.send(Signal::STOP)?;
        // The signal is only sent: each thread stops when it is told.
        let sent = Instant::now();
        while !self.is_held()? && sent.elapsed() < STOP_PATIENCE {
            thread::sleep(EXIT_POLL);
        }
        Ok(())
    }

    /// Each of its threads is stopped (the third field of `/proc/<pid>/task/<id>/stat`), or has ended.
    fn is_held(&self) -> Result<bool> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()))?;
        Ok(threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, fields)| fields.starts_with(['T', 'Z', 'X']))
        }))
    }

    /// Lets it go on.
    pub fn thaw(&self) -> Result<()> {
        self.send(Signal::CONT)
    }

    /// Ends it at once, as a crash does.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to end, and does not wait.
    pub fn ask_to_end(&self) -> Result<()> {
        self.send(Signal::TERM)
    }

    /// Asks it to end and waits; whether it did within `patience`. Kills it otherwise.
    pub fn terminate(&mut self, patience: Duration) -> Result<bool> {
        self.ask_to_end()?;
        let asked = Instant::now();
        while self.is_running() {
            if asked.elapsed() > patience {
                self.kill()?;
                return Ok(false);
            }
            thread::sleep(EXIT_POLL);
        }
        Ok(true)
    }

    /// CPU time that it has used so far, of all its threads, in user and kernel mode (`/proc/<pid>/stat`, fields 14 and
    /// 15, in ticks of the kernel's clock).
    pub fn cpu_time(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The second field is the name in brackets, which may hold spaces.
        let (_, fields) = stat.rsplit_once(") ").context("no name in /proc/<pid>/stat")?;
        let ticks: u64 = fields
            .split(' ')
            .skip(11)
            .take(2)
            .map(str::parse::<u64>)
            .sum::<Result<_, _>>()
            .context("no ticks")?;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    fn send(&self, signal: Signal) -> Result<()> {
        kill_process(self.pid()?, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    fn pid(&self) -> Result<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("no such process id")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already, which is what is wanted.
        drop(self.kill());
    }
}

type Start = (Command, mpsc::SyncSender<io::Result<Child>>);

/// Starts `command` from the thread that starts them all.
fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<mpsc::SyncSender<Start>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, starts) = mpsc::sync_channel::<Start>(0);
        thread::spawn(move || {
            for (mut command, answer) in starts {
                // Whoever asked waits for it; were they gone, the child would be dropped and run on unowned.
                if let Err(mpsc::SendError(Ok(mut child))) = answer.send(command.spawn()) {
                    drop(child.kill());
                }
            }
        });
        sender
    });
    let (answer, started) = mpsc::sync_channel(1);
    let gone = |_| io::Error::other("the thread that starts processes is gone");
    starter.send((command, answer)).map_err(|_| gone(()))?;
    started.recv().map_err(|_| gone(()))?
}
