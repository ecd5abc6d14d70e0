//! Compares our prompts with recorded ones, model by model, and prints counts.
//!
//! ```text
//! golden DIR [ENCODER]             DIR/<model>/tokenizer.json(.gz), DIR/golden/<model>.jsonl; ENCODER: instead of the
//!                                  one that would be chosen: fastokens, splintr or tokenizers
//! golden --captures MODEL FILE VERSION [DATE]    MODEL: a model's folder; FILE: requests.jsonl, or .jsonl.gz, of an
//!                                  engine of that VERSION; DATE: the engine's
//! ```
//!
//! Exits with 1 where anything differs.

#[path = "../tests/support/captures.rs"]
mod captures;
#[path = "../tests/support/golden.rs"]
mod golden;
#[path = "support/unpacked.rs"]
mod unpacked;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use flate2::read::GzDecoder;
use unpacked::unpacked;
use warmpath_prompt::{ChatRenderer, EncoderKind, FixedClock, ModelFiles, ModelPrompt};

/// Faults shown per model.
const SHOWN: usize = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["--captures", model, file, version] => {
            compare_captures(Path::new(model), Path::new(file), version, None)
        }
        ["--captures", model, file, version, date] => {
            compare_captures(Path::new(model), Path::new(file), version, Some(date))
        }
        [dir] => compare_golden(Path::new(dir), None),
        [dir, encoder] => match EncoderKind::ALL.into_iter().find(|kind| kind.name() == *encoder) {
            Some(encoder) => compare_golden(Path::new(dir), Some(encoder)),
            None => Err(format!("{encoder}: expected fastokens, splintr or tokenizers")),
        },
        _ => Err("usage: golden DIR [ENCODER] | golden --captures MODEL FILE VERSION [DATE]".to_owned()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "golden: {error}");
            ExitCode::FAILURE
        }
    }
}

/// True: everything is equal.
fn compare_golden(root: &Path, encoder: Option<EncoderKind>) -> Result<bool, String> {
    let mut out = std::io::stdout();
    let mut all_equal = true;
    for path in sorted(&root.join("golden"))? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_none_or(|end| end != "jsonl") || !root.join(&name).is_dir() {
            continue;
        }
        let lines = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut files = golden::at_golden_time(ModelFiles::in_dir(unpacked(&root.join(&name))?), &lines);
        files.chat_renderer = ChatRenderer::Jinja;
        files.encoder = encoder;
        let start = Instant::now();
        let model = match ModelPrompt::load(&files) {
            Ok(model) => model,
            // That an encoder does not take a model is a result, too.
            Err(error) if encoder.is_some() => {
                let _ = writeln!(out, "{name}: {error}");
                continue;
            }
            Err(error) => return Err(error.to_string()),
        };
        let loading = start.elapsed();
        let report = golden::compare(&model, &lines);
        let _ = writeln!(
            out,
            "{name}: {}, loaded in {loading:.1?}, {:?} {}/{} conversations ({} refused), {}/{} texts",
            model.encoder().kind.name(),
            model.content_format(),
            report.chats_equal,
            report.chats,
            report.refusals,
            report.texts_equal,
            report.texts
        );
        for (kind, why) in &model.encoder().refused {
            let _ = writeln!(out, "    not {}: {why}", kind.name());
        }
        for fault in report.faults.iter().take(SHOWN) {
            let _ = writeln!(out, "    {fault}");
        }
        all_equal &= report.faults.is_empty();
    }
    Ok(all_equal)
}

fn compare_captures(model: &Path, file: &Path, version: &str, date: Option<&str>) -> Result<bool, String> {
    let mut out = std::io::stdout();
    let mut files = ModelFiles::in_dir(unpacked(model)?);
    files.engine_version = version.parse().map_err(|error| format!("{error}"))?;
    files.trust_request_template = true;
    if let Some(date) = date {
        let date: jiff::civil::Date = date.parse().map_err(|error| format!("{date}: {error}"))?;
        files.clock = Arc::new(FixedClock(date.at(12, 0, 0, 0)));
    }
    let model = ModelPrompt::load(&files).map_err(|error| error.to_string())?;
    let lines = read_lines(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let report = captures::compare(&model, &lines);
    let _ = writeln!(
        out,
        "{version}: {}/{} prompts equal, {}/{} equal in tokens and blocks, {} requests, refused by the engine: {:?}",
        report.equal, report.prompts, report.stored_equal, report.stored, report.requests, report.refused
    );
    for (id, fault) in &report.faults {
        let _ = writeln!(out, "    {id}: {fault}");
    }
    Ok(report.faults.is_empty())
}

fn read_lines(file: &Path) -> std::io::Result<String> {
    if file.extension().is_none_or(|end| end != "gz") {
        return fs::read_to_string(file);
    }
    let mut text = String::new();
    GzDecoder::new(fs::File::open(file)?).read_to_string(&mut text)?;
    Ok(text)
}

fn sorted(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    Ok(paths)
}
