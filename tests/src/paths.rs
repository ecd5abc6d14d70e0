//! Where the parts under test are. Natives are built on first use; what `make` builds is only looked for.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail, ensure};

/// What `warmpath` is built from.
pub const INDEXER_SOURCES: [&str; 6] = [
    "indexer/src",
    "indexer/core/src",
    "indexer/prompt/src",
    "indexer/standing/src",
    "filter/core/src",
    "proto/src",
];
/// What `filter.wasm` is built from.
pub const FILTER_SOURCES: [&str; 3] = ["filter/src", "filter/core/src", "proto/src"];
/// What the browser build is built from.
pub const WEB_SOURCES: [&str; 2] = ["filter/web/src", "filter/core/src"];
/// What the engine emulator is built from.
pub const EMULATOR_SOURCES: [&str; 1] = ["tests/emulator/src"];

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder for what tests and demo write.
pub fn target() -> PathBuf {
    root().join("target")
}

/// The Envoy that `tests/setup.sh` provides.
pub fn envoy() -> Result<PathBuf> {
    existing(target().join("warmpath/envoy"), "make setup")
}

/// The folder of a model's tokenizer, as `tests/setup.sh` unpacks it.
pub fn tokenizer(name: &str) -> Result<PathBuf> {
    existing(target().join("fixtures").join(name), "make setup")
}

/// The filter for Envoy. An error where it is older than its sources: a test against yesterday's filter proves nothing.
pub fn filter_wasm() -> Result<PathBuf> {
    let wasm = existing(target().join("warmpath/filter.wasm"), "make wasm")?;
    if let Some(newer) = newer_source(&wasm, &FILTER_SOURCES)? {
        bail!("filter.wasm is older than {}: run `make wasm`", newer.display());
    }
    Ok(wasm)
}

/// The folder of the browser build. An error where it is older than its sources, as with the filter.
pub fn web() -> Result<PathBuf> {
    let web = existing(target().join("warmpath/web"), "make web")?;
    let module = existing(web.join("warmpath_web_bg.wasm"), "make web")?;
    if let Some(newer) = newer_source(&module, &WEB_SOURCES)? {
        bail!("the browser build is older than {}: run `make web`", newer.display());
    }
    Ok(web)
}

/// The browser that `tests/setup.sh` provides.
pub fn browser() -> Result<PathBuf> {
    existing(target().join("warmpath/browser"), "make setup")
}

/// The library that moves the wall clock of a process, as `tests/setup.sh` builds it. An error where it is older than its
/// source.
pub fn wall_clock() -> Result<PathBuf> {
    let library = existing(target().join("warmpath/wall_clock.so"), "make setup")?;
    let source = root().join("tests/src/machine");
    ensure!(
        newer_in(&source, library.metadata()?.modified()?)?.is_none(),
        "wall_clock.so is older than its source: run `make setup`"
    );
    // It is loaded by processes that run elsewhere.
    Ok(library.canonicalize()?)
}

/// The indexer, `warmpath`.
pub fn indexer() -> Result<PathBuf> {
    native("warmpath", &INDEXER_SOURCES)
}

/// The engine emulator.
pub fn emulator() -> Result<PathBuf> {
    native("engine-emulator", &EMULATOR_SOURCES)
}

fn existing(path: PathBuf, remedy: &str) -> Result<PathBuf> {
    ensure!(path.exists(), "{} is missing: run `{remedy}`", path.display());
    Ok(path)
}

/// A source in these folders that changed after `built` was made, if there is one.
fn newer_source(built: &Path, folders: &[&str]) -> Result<Option<PathBuf>> {
    let time = built.metadata()?.modified()?;
    for folder in folders {
        if let Some(newer) = newer_in(&root().join(folder), time)? {
            return Ok(Some(newer));
        }
    }
    Ok(None)
}

/// A source under `folder` that changed after `time`. Unit tests are no part of what is built.
fn newer_in(folder: &Path, time: SystemTime) -> Result<Option<PathBuf>> {
    for entry in folder.read_dir().with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let newer = if path.file_stem().is_some_and(|stem| stem == "tests") {
            None
        } else if path.is_dir() {
            newer_in(&path, time)?
        } else {
            (path.metadata()?.modified()? > time).then_some(path)
        };
        if newer.is_some() {
            return Ok(newer);
        }
    }
    Ok(None)
}

/// A program of this workspace in the profile of the running one, built first where it is missing or older than its
/// sources: `cargo test -p warmpath-tests` does not build it, and a stale one would prove nothing.
fn native(name: &str, folders: &[&str]) -> Result<PathBuf> {
    static BUILD: Mutex<()> = Mutex::new(());
    let alone = BUILD.lock().unwrap_or_else(PoisonError::into_inner);
    let program = profile_folder()?.join(name);
    if !program.exists() || newer_source(&program, folders)?.is_some() {
        build_natives()?;
    }
    drop(alone);
    existing(program, "cargo build")
}

/// The folder of this profile's programs.
fn profile_folder() -> Result<PathBuf> {
    let running = std::env::current_exe().context("cannot tell where the running program is")?;
    let folder = running.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
    Ok(folder.context("the running program is in no folder of cargo's")?.to_path_buf())
}

/// Builds both programs in the profile of the running one.
fn build_natives() -> Result<()> {
    let folder = profile_folder()?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(name) => name,
        None => bail!("{} names no profile", folder.display()),
    };
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["build", "--quiet", "--profile", profile])
        .args(["--package", "warmpath-indexer", "--package", "engine-emulator", "--bins"])
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo build failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
