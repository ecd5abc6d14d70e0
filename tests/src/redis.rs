//! A real Redis that keeps nothing on disk.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream};

use crate::eventually::{Look, eventually, seen_if};
use crate::ports::Port;
use crate::process::Process;

/// A command takes microseconds; who waits longer has frozen it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A running Redis. Restarted, it keeps its port and nothing else.
#[derive(Debug)]
pub struct Redis {
    port: Port,
    process: Process,
    dir: PathBuf,
}

impl Redis {
    /// Starts one and waits until it listens. `dir`: for its log.
    pub async fn start(port: Port, dir: &Path) -> Result<Self> {
        let process = launch(&port, dir)?;
        let mut redis = Self { port, process, dir: dir.to_owned() };
        redis.wait_until_it_listens().await?;
        Ok(redis)
    }

    /// Starts it again after it was killed, empty.
    pub async fn start_again(&mut self) -> Result<()> {
        self.launch_again()?;
        self.wait_until_it_listens().await
    }

    /// The same, and does not wait until it listens.
    pub fn launch_again(&mut self) -> Result<()> {
        self.process = launch(&self.port, &self.dir)?;
        Ok(())
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

    /// The process, to freeze, thaw or kill.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

fn launch(port: &Port, dir: &Path) -> Result<Process> {
    let port = port.number().to_string();
    let args = ["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"];
    Process::start("redis", Path::new("redis-server"), args, dir)
}
