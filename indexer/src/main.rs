//! `warmpath`: parses the command line, builds the program, waits for its end. The only place that decides the exit code.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warmpath_indexer::app::App;
use warmpath_indexer::check::{self, CheckError, Selection, Summary};
use warmpath_indexer::config::{Config, ConfigError, HostPort};
use warmpath_indexer::evidence::{self, Moment, ReportError, Sources};
use warmpath_indexer::lifecycle::EndSignals;
use warmpath_indexer::logs;
use warmpath_indexer::models::{ModelErrors, Models};

/// Prompts are texts of some hundred kilobytes that come and go with each request: what the C library's allocator gives back
/// to the system and takes again costs a fifth of a decision.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code of a check that found a difference.
const EX_DIFFERENT: u8 = 1;
/// Exit code of a configuration that cannot be used, as in sysexits.h.
const EX_USAGE: u8 = 64;
/// Exit code of a check whose engine cannot be asked, as in sysexits.h.
const EX_UNAVAILABLE: u8 = 69;

/// Routes LLM requests to the replica that holds their prefix.
#[derive(Parser)]
#[command(name = "warmpath", version)]
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
    /// Compares our token ids of a built-in set of prompts with those of the engines. Exit code 0: all equal; 1: some
    /// differ; 64: the configuration cannot be used; 69: an engine cannot be asked.
    Check {
        /// The configuration file.
        #[arg(long)]
        config: PathBuf,
        /// An engine to ask in place of the configured ones.
        #[arg(long, value_name = "http://HOST:PORT", value_parser = endpoint)]
        endpoint: Option<HostPort>,
        /// Only this model.
        #[arg(long)]
        model: Option<String>,
    },
    /// Reads the metrics of indexers and engines at two moments and prints how requests were spread, what the engines'
    /// caches say and what index and events did, side by side, with what each of them proves. Exit code 0; 64: the
    /// configuration or the moments cannot be used; 69: no indexer answers.
    Report {
        /// The configuration file: names the engines, and the indexer unless others are given.
        #[arg(long)]
        config: PathBuf,
        /// The beginning: `start` (of each program), `now`, `+30s`, `+5m`, or a file written with --save.
        #[arg(long, value_name = "WHEN", default_value = "start")]
        from: Moment,
        /// The end, written in the same way.
        #[arg(long, value_name = "WHEN", default_value = "now")]
        to: Moment,
        /// The admin listener of an indexer in place of the configured one; once for each.
        #[arg(long, value_name = "HOST:PORT", value_parser = endpoint)]
        indexer: Vec<HostPort>,
        /// Where to keep the reading at the end, to begin another window with it.
        #[arg(long, value_name = "FILE")]
        save: Option<PathBuf>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve { config, check } => serve(&config, check).map(|()| ExitCode::SUCCESS),
        Command::Check { config, endpoint, model } => compare(&config, Selection { endpoint, model }),
        Command::Report { config, from, to, indexer, save, json } => {
            tell(&config, &indexer, (&from, &to), save.as_deref(), json).map(|()| ExitCode::SUCCESS)
        }
    };
    let code = match result {
        Ok(code) => code,
        Err(error) if matches!(error.downcast_ref(), Some(CheckError::Lookup { .. })) => {
            print_mistakes(&error);
            ExitCode::from(EX_UNAVAILABLE)
        }
        Err(error) if matches!(error.downcast_ref(), Some(ReportError::NoIndexer(_))) => {
            print_mistakes(&error);
            ExitCode::from(EX_UNAVAILABLE)
        }
        Err(error) if error.is::<ReportError>() => {
            print_mistakes(&error);
            ExitCode::from(EX_USAGE)
        }
        Err(error) if error.is::<ConfigError>() || error.is::<ModelErrors>() || error.is::<CheckError>() => {
            print_mistakes(&error);
            ExitCode::from(EX_USAGE)
        }
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "cannot go on");
            ExitCode::FAILURE
        }
    };
    logs::finish();
    code
}

fn compare(path: &Path, selection: Selection) -> anyhow::Result<ExitCode> {
    let config = Config::load(path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reports = runtime.block_on(check::run(&config, &selection))?;
    for report in &reports {
        print_out(&format!("{report}\n"));
    }
    Ok(match Summary::of(&reports) {
        Summary::Equal => ExitCode::SUCCESS,
        Summary::Different => ExitCode::from(EX_DIFFERENT),
        Summary::Unreachable => ExitCode::from(EX_UNAVAILABLE),
    })
}

fn tell(
    path: &Path,
    indexers: &[HostPort],
    window: (&Moment, &Moment),
    save: Option<&Path>,
    json: bool,
) -> anyhow::Result<()> {
    let config = Config::load(path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let sources = Sources::of(&config, indexers).await?;
        evidence::report(&sources, window, save).await
    })?;
    let text =
        if json { format!("{}\n", serde_json::to_string_pretty(&report)?) } else { report.to_string() };
    print_out(&text);
    Ok(())
}

/// An engine's address as it is typed: with or without a scheme and a slash at the end.
fn endpoint(text: &str) -> Result<HostPort, &'static str> {
    let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    address.parse().map_err(|_| "expected http://HOST:PORT; TLS is not spoken here")
}

fn serve(path: &Path, check: bool) -> anyhow::Result<()> {
    let config = Config::load(path)?;
    if check {
        // All of the start that needs no network.
        config.redis_access().map_err(|error| error.in_file(Some(path)))?;
        Models::load(&config.models)?;
        print_out(&config.to_yaml()?);
        return Ok(());
    }
    logs::start(&config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut signals = EndSignals::listen()?;
        let app = tokio::select! {
            app = App::build(config, Some(path.to_owned())) => app?,
            signal = signals.next() => {
                tracing::info!(signal, "stopped before it had started up");
                return Ok(());
            }
        };
        app.run_until_signal(signals).await
    });
    // A model that is being loaded, or a prompt that nobody waits for, must not hold up the end.
    runtime.shutdown_background();
    ended
}

/// For whoever reads; nothing is lost where nobody does any more.
fn print_out(text: &str) {
    drop(io::stdout().write_all(text.as_bytes()));
}

/// The same, for a person who wants to know why the configuration is refused.
fn print_mistakes(error: &anyhow::Error) {
    drop(writeln!(io::stderr(), "{error}"));
}
