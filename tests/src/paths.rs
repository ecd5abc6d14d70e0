//! Where the parts under test are. Natives are built on first use; what `make` builds is only looked for.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail, ensure};

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
    let built = wasm.metadata()?.modified()?;
    for sources in ["filter/src", "filter/core/src", "proto/src"] {
        if let Some(newer) = newer_source(&root().join(sources), built)? {
            bail!("filter.wasm is older than {}: run `make wasm`", newer.display());
        }
    }
    Ok(wasm)
}

/// The indexer, `warmpath`.
pub fn indexer() -> Result<PathBuf> {
    native("warmpath")
}

/// The engine emulator.
pub fn emulator() -> Result<PathBuf> {
    native("engine-emulator")
}

fn existing(path: PathBuf, remedy: &str) -> Result<PathBuf> {
    ensure!(path.exists(), "{} is missing: run `{remedy}`", path.display());
    Ok(path)
}

/// A source file under `folder` that changed after `built`, if there is one. Unit tests are no part of the filter.
fn newer_source(folder: &Path, built: SystemTime) -> Result<Option<PathBuf>> {
    for entry in folder.read_dir().with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let newer = if path.file_stem().is_some_and(|stem| stem == "tests") {
            None
        } else if path.is_dir() {
            newer_source(&path, built)?
        } else {
            (path.metadata()?.modified()? > built).then_some(path)
        };
        if newer.is_some() {
            return Ok(newer);
        }
    }
    Ok(None)
}

/// A program of this workspace, built in the profile of the running one. `cargo test` builds the programs of the
/// package under test only, and a stale one would be worse than none.
fn native(name: &str) -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let folder = BUILT.get_or_init(|| build_natives().map_err(|error| format!("{error:#}")));
    match folder {
        Ok(folder) => existing(folder.join(name), "cargo build"),
        Err(error) => bail!("{error}"),
    }
}

/// Builds both programs; the folder they are in.
fn build_natives() -> Result<PathBuf> {
    let running = std::env::current_exe().context("cannot tell where the running program is")?;
    let folder = running
        .ancestors()
        .skip(1)
        .find(|folder| !folder.ends_with("deps"))
        .context("the running program is in no folder of cargo's")?;
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
    Ok(folder.to_path_buf())
}
