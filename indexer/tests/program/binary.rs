//! The real binary, and configuration files for it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use warmpath_indexer::app::Bound;

/// A running `warmpath serve`; killed when dropped.
pub(crate) struct Program {
    child: Child,
    pub(crate) bound: Bound,
    config: ConfigFile,
}

/// A configuration file; deleted when dropped.
pub(crate) struct ConfigFile(PathBuf);

impl Drop for ConfigFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).expect("it was written");
    }
}

impl Program {
    pub(crate) fn start(yaml: &str, name: &str) -> Self {
        let config = written(yaml, name);
        let mut child = serve(&config).stderr(Stdio::piped()).spawn().unwrap();
        let logs = BufReader::new(child.stderr.take().unwrap());
        let mut lines = logs.lines();
        let listening = lines
            .by_ref()
            .map(|line| serde_json::from_str::<Value>(&line.unwrap()).expect("logs are JSON lines"))
            .find(|line| line["message"] == "listening")
            .expect("it tells where it listens");
        let address = |key: &str| -> SocketAddr { listening[key].as_str().unwrap().parse().unwrap() };
        let bound = Bound { grpc: address("grpc"), admin: address("admin") };
        // Nobody reads the rest, so it must go somewhere.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, bound, config }
    }

    /// Writes another text into its configuration file.
    pub(crate) fn rewrite(&self, yaml: &str) {
        std::fs::write(&self.config.0, yaml).unwrap();
    }

    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    pub(crate) async fn exited(&mut self) -> ExitStatus {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "it still runs");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped_already = self.child.wait();
    }
}

/// `warmpath serve` with this configuration.
pub(crate) fn serve(config: &ConfigFile) -> Command {
    warmpath("serve", config)
}

/// `warmpath COMMAND` with this configuration.
pub(crate) fn warmpath(command: &str, config: &ConfigFile) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_warmpath"));
    program.arg(command).arg("--config").arg(&config.0);
    program
}

pub(crate) fn written(yaml: &str, name: &str) -> ConfigFile {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.yaml", std::process::id()));
    std::fs::write(&path, yaml).unwrap();
    ConfigFile(path)
}
