//! A real Redis, which keeps nothing on disk unless it is told to.

use std::ffi::OsStr;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream};

use crate::eventually::{Look, eventually, seen_if};
use crate::machine::Machine;
use crate::ports::Port;
use crate::process::Process;

/// A command takes microseconds; who waits longer has frozen it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What it keeps on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Keeps {
    /// Nothing: restarted, it is empty.
    Nothing,
    /// A snapshot every second in which anything changed.
    Snapshots,
    /// Every command, written to the disk within a second.
    Log,
}

/// A running Redis. Restarted, it keeps its port, and what it has on disk.
#[derive(Debug)]
pub struct Redis {
    port: Port,
    keeps: Keeps,
    process: Process,
    dir: PathBuf,
}

impl Redis {
    /// Starts one that keeps nothing and waits until it listens. `dir`: for its log.
    pub async fn start(port: Port, dir: &Path) -> Result<Self> {
        Self::start_as(Keeps::Nothing, None, port, dir).await
    }

    /// The same for one that keeps something, on a machine of its own.
    pub async fn start_on_machine(keeps: Keeps, port: Port, dir: &Path) -> Result<Self> {
        Self::start_as(keeps, Some(Machine::new("redis", dir)?), port, dir).await
    }

    async fn start_as(keeps: Keeps, machine: Option<Arc<Machine>>, port: Port, dir: &Path) -> Result<Self> {
        let process = launch(machine, keeps, &port, dir)?;
        let mut redis = Self { port, keeps, process, dir: dir.to_owned() };
        redis.wait_until_it_listens().await?;
        Ok(redis)
    }

    /// Starts it again after it was killed.
    pub async fn start_again(&mut self) -> Result<()> {
        self.launch_again()?;
        self.wait_until_it_listens().await
    }

    /// The same, and does not wait until it listens.
    pub fn launch_again(&mut self) -> Result<()> {
        self.process = launch(self.process.machine(), self.keeps, &self.port, &self.dir)?;
        Ok(())
    }

    /// The same on an empty disk.
    pub fn launch_again_on_empty_disk(&mut self) -> Result<()> {
        std::fs::remove_dir_all(data(&self.dir)).context("cannot empty the disk of Redis")?;
        self.launch_again()
    }

    /// `ip:port`.
    pub fn address(&self) -> String {
        self.port.to_string()
    }

    /// Has it carry out a command whose words hold no spaces, and returns the first line of its answer; an error where
    /// it refuses, or does not answer in time.
    pub async fn command(&self, words: &str) -> Result<String> {
        let exchange = async {
            let mut connection = BufStream::new(tokio::net::TcpStream::connect(self.address()).await?);
            connection.write_all(format!("{words}\r\n").as_bytes()).await?;
            connection.flush().await?;
            let mut line = String::new();
            connection.read_line(&mut line).await?;
            anyhow::Ok(line.trim_end().to_owned())
        };
        let answer =
            tokio::time::timeout(ANSWER_TIMEOUT, exchange).await.context("Redis does not answer")??;
        ensure!(!answer.starts_with('-'), "Redis refuses `{words}`: {answer}");
        Ok(answer)
    }

    /// Waits until it takes connections.
    pub async fn wait_until_it_listens(&mut self) -> Result<()> {
        eventually("Redis listens", async || {
            if !self.process.is_running() {
                return Ok(Look::Never(format!("Redis ended: {}", self.process.log())));
            }
            let connected = TcpStream::connect(("127.0.0.1", self.port.number()));
            seen_if(connected.is_ok(), format!("{connected:?}"))
        })
        .await
    }

    /// What it answers to a command, as bytes.
    pub fn ask(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        let port = self.port.number().to_string();
        let output = Command::new("redis-cli").args(["-p", &port]).args(arguments).output()?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(output.stdout)
    }

    /// Every key with its whole value.
    pub fn everything(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let keys = String::from_utf8(self.ask(&["--scan"])?)?;
        let mut all = Vec::new();
        for key in keys.lines() {
            let kind = String::from_utf8(self.ask(&["type", key])?)?;
            let value = match kind.trim() {
                "string" => self.ask(&["get", key])?,
                "zset" => self.ask(&["zrange", key, "0", "-1", "withscores"])?,
                // It has expired meanwhile.
                "none" => continue,
                other => bail!("{key} is a {other}"),
            };
            all.push((key.to_owned(), value));
        }
        Ok(all)
    }

    /// Sets the clock of its machine so many seconds ahead of the right time, or behind it.
    pub fn set_clock(&self, ahead_s: i64) -> Result<()> {
        self.process.set_clock(ahead_s)
    }

    /// Leaves no room on its disk, or as much as there is.
    pub fn fill_disk(&self, is_full: bool) -> Result<()> {
        self.process.fill_disk(is_full)
    }

    /// The process, to freeze, thaw or kill.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Where it keeps what it keeps.
fn data(dir: &Path) -> PathBuf {
    dir.join("redis-data")
}

fn launch(machine: Option<Arc<Machine>>, keeps: Keeps, port: &Port, dir: &Path) -> Result<Process> {
    let (port, data) = (port.number().to_string(), data(dir));
    std::fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
    let (save, appendonly) = match keeps {
        Keeps::Nothing => ("", "no"),
        Keeps::Snapshots => ("1 1", "no"),
        Keeps::Log => ("", "yes"),
    };
    let args = ["--bind", "127.0.0.1", "--port", &port, "--save", save, "--appendonly", appendonly];
    let args = args.iter().map(OsStr::new).chain(["--dir".as_ref(), data.as_os_str()]);
    Process::start_on(machine, "redis", Path::new("redis-server"), args, dir)
}
