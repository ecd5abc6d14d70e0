//! `warmpath`: parses the command line, builds the program, waits for its end. The only place that decides the exit code.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warmpath_indexer::app::App;
use warmpath_indexer::config::{Config, ConfigError};
use warmpath_indexer::logs;
use warmpath_indexer::models::{ModelErrors, Models};

/// Exit code of a configuration that cannot be used, as in sysexits.h.
const EX_USAGE: u8 = 64;

/// Routes LLM requests to the replica that holds their prefix.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the indexer.
    Serve {
        /// The configuration file.
        #[arg(long)]
        config: PathBuf,
        /// Checks the configuration and the models' files, prints what is in effect, and exits.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let Command::Serve { config, check } = Cli::parse().command;
    match serve(&config, check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<ConfigError>() || error.is::<ModelErrors>() => {
            print_mistakes(&error);
            ExitCode::from(EX_USAGE)
        }
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "cannot go on");
            ExitCode::FAILURE
        }
    }
}

fn serve(path: &Path, check: bool) -> anyhow::Result<()> {
    let config = Config::load(path)?;
    if check {
        // All of the start that needs no network.
        Models::load(&config.models)?;
        print_effective(&config.to_yaml()?);
        return Ok(());
    }
    logs::start(&config.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { App::build(config, Some(path.to_owned())).await?.run_until_signal().await })
}

#[expect(clippy::print_stdout, reason = "the output of --check")]
fn print_effective(yaml: &str) {
    print!("{yaml}");
}

#[expect(clippy::print_stderr, reason = "a person reads why the configuration is refused")]
fn print_mistakes(error: &anyhow::Error) {
    eprintln!("{error}");
}
