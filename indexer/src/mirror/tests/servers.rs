//! Real Redis servers on loopback, with nothing kept on disk: alone, watched by sentinels, or three as a cluster.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::super::{RedisAccess, RedisStore};
use super::ports::Port;
use crate::config::Config;

mod certificates;
mod groups;

pub(super) use certificates::Certificates;
pub(super) use groups::{Cluster, Watched};

/// Of each command of the stores here: long enough for a busy machine.
pub(super) const TIMEOUT: Duration = Duration::from_millis(500);
/// Longest wait for a server.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder of this test's own, gone with it.
pub(super) struct Folder(PathBuf);

/// One server. It keeps its port, and nothing else, when it is started again.
pub(super) struct RedisServer {
    port: Port,
    folder: Folder,
    /// Of a configuration file.
    lines: Vec<String>,
    is_sentinel: bool,
    /// What `redis-cli` has to be told where the server speaks TLS only.
    cli: Vec<String>,
    child: Option<Child>,
}

/// The store of these settings, the inside of a mapping; images are kept for `expiry`.
pub(super) fn store(settings: &str, expiry: Duration) -> RedisStore {
    RedisStore::new(access(settings), "warmpath", expiry)
}

pub(super) fn access(settings: &str) -> RedisAccess {
    let text = format!("mirror: {{ {settings}, timeout_ms: {} }}", TIMEOUT.as_millis());
    Config::parse(&text).unwrap().redis_access().unwrap().unwrap()
}

/// Polls until it says yes.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

// === impl Folder ===

impl Folder {
    pub(super) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("warmpath-mirror-{:016x}", rand::random::<u64>()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(&self.0);
    }
}

// === impl RedisServer ===

impl RedisServer {
    pub(super) fn start(lines: &[&str]) -> Self {
        Self::start_at(Port::claim().unwrap(), None, lines)
    }

    /// With certificates it speaks TLS only, to who shows a certificate of the same authority.
    pub(super) fn start_at(port: Port, certificates: Option<&Certificates>, lines: &[&str]) -> Self {
        let lines = [&["save \"\""], lines].concat();
        Self::of(port, certificates, false, &lines)
    }

    fn sentinel(certificates: Option<&Certificates>, lines: &[&str]) -> Self {
        Self::of(Port::claim().unwrap(), certificates, true, lines)
    }

    fn of(port: Port, certificates: Option<&Certificates>, is_sentinel: bool, lines: &[&str]) -> Self {
        let mut all = match certificates {
            None => vec![format!("port {}", port.number())],
            Some(certificates) => certificates.server(port.number()),
        };
        all.push("bind 127.0.0.1".to_owned());
        all.extend(lines.iter().map(|line| (*line).to_owned()));
        let cli = certificates.map(Certificates::cli).unwrap_or_default();
        let mut server = Self { port, folder: Folder::new(), lines: all, is_sentinel, cli, child: None };
        server.spawn();
        server
    }

    fn spawn(&mut self) {
        let mut text = String::new();
        for line in &self.lines {
            writeln!(text, "{line}").unwrap();
        }
        writeln!(text, "dir {}", self.folder.path().display()).unwrap();
        let file = self.folder.write("redis.conf", &text);
        let mut command = Command::new("redis-server");
        command.arg(file).stdout(Stdio::null());
        if self.is_sentinel {
            command.arg("--sentinel");
        }
        self.child = Some(command.spawn().expect("redis-server is installed (`make setup`)"));
        until("redis-server listens", || TcpStream::connect(self.address()).is_ok());
    }

    /// `ip:port`.
    pub(super) fn address(&self) -> String {
        self.port.to_string()
    }

    pub(super) fn port(&self) -> u16 {
        self.port.number()
    }

    pub(super) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Comes back with nothing of what it had.
    pub(super) fn restart(&mut self) {
        self.stop();
        self.spawn();
    }

    pub(super) fn pause(&self) {
        self.signal("STOP");
    }

    pub(super) fn go_on(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
    }

    /// What the server answers, line by line.
    pub(super) fn ask(&self, arguments: &[&str]) -> Vec<String> {
        let port = self.port.number().to_string();
        let output = Command::new("redis-cli").args(["-p", &port]).args(&self.cli).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    pub(super) fn store(&self, expiry: Duration) -> RedisStore {
        store(&format!("redis: \"{}\"", self.address()), expiry)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}
