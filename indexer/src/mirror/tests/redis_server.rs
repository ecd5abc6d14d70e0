//! A real Redis on a free port, with nothing kept on disk.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::super::{RedisAccess, RedisStore};

pub(super) struct RedisServer {
    port: u16,
    arguments: Vec<String>,
    child: Option<Child>,
}

// === impl RedisServer ===

impl RedisServer {
    /// Of each command of its stores.
    pub(super) const TIMEOUT: Duration = Duration::from_millis(300);

    pub(super) fn start(arguments: &[&str]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut server = Self { port, arguments, child: None };
        server.spawn();
        server
    }

    fn spawn(&mut self) {
        let child = Command::new("redis-server")
            .args([
                "--bind",
                "127.0.0.1",
                "--port",
                &self.port.to_string(),
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .args(&self.arguments)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed (`make setup`)");
        self.child = Some(child);
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
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

    pub(super) fn pause(&mut self) {
        self.signal("STOP");
    }

    pub(super) fn go_on(&mut self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
    }

    pub(super) fn command(&self, arguments: &[&str]) {
        let output = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(arguments).output();
        assert!(output.unwrap().status.success());
    }

    pub(super) fn store(&self, expiry: Duration) -> RedisStore {
        self.store_with(expiry, "warmpath", None)
    }

    pub(super) fn store_with(&self, expiry: Duration, prefix: &str, password: Option<&str>) -> RedisStore {
        let access = RedisAccess {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            database: 0,
            username: None,
            password: password.map(str::to_owned),
        };
        RedisStore::new(access, prefix, expiry, Self::TIMEOUT).unwrap()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}
