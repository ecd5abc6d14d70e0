//! The emulator as a program: flags in, one JSON line with the bound addresses on standard output, then it serves
//! until SIGINT or SIGTERM.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use engine_emulator::{Emulator, EmulatorConfig};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// An emulated vLLM server for tests.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    config: EmulatorConfig,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    match run(cli.config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: EmulatorConfig) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch SIGTERM")?;
    let emulator = Emulator::start(config).await?;
    let ready = serde_json::to_string(emulator.addresses())?;
    let mut out = std::io::stdout();
    writeln!(out, "{ready}").and_then(|()| out.flush()).context("cannot write to standard output")?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    emulator.stop().await;
    Ok(())
}
