//! `warmpath`: parses the command line, builds the program, waits for its end. The only place that decides the exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warmpath_indexer::app::App;
use warmpath_indexer::config::Config;
use warmpath_indexer::decide::{ModelErrors, Models};
use warmpath_indexer::logs;

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
    let Command::Serve { config: path, check } = Cli::parse().command;
    let config = match Config::load(&path) {
        Ok(config) => config,
        Err(error) => return refused(&error),
    };
    if check {
        return self::check(&config);
    }
    logs::start(&config.log);
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<ModelErrors>() {
            Some(errors) => refused(errors),
            None => {
                tracing::error!(error = format!("{error:#}"), "cannot go on");
                ExitCode::FAILURE
            }
        },
    }
}

/// Does all of the start that needs no network.
fn check(config: &Config) -> ExitCode {
    if let Err(errors) = Models::load(&config.models) {
        return refused(&errors);
    }
    match config.to_yaml() {
        Ok(yaml) => {
            print_out(&yaml);
            ExitCode::SUCCESS
        }
        Err(error) => refused(&error),
    }
}

fn serve(config: Config) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let app = App::build(config).await?;
        app.run_until_signal().await
    })
}

#[expect(clippy::print_stdout, reason = "the output of --check")]
fn print_out(text: &str) {
    print!("{text}");
}

#[expect(clippy::print_stderr, reason = "a person reads why the configuration is refused")]
fn refused(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(EX_USAGE)
}
