//! What holds for the repository as a whole and no compiler checks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use warmpath_tests::paths;

/// Lines that a source file may have. More is a sign that two things live in it.
const LINES_MAX: usize = 600;

/// Licences that code linked into a shipped program may have (SPDX identifiers). Of an `OR` one is enough.
const LICENCES: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

#[test]
fn every_dependency_has_an_allowed_licence() {
    let metadata = cargo_metadata();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "{} packages only: is this the whole graph?", packages.len());
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(is_allowed))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "licences that are not allowed:\n{}", refused.join("\n"));
}

#[test]
fn licence_expressions_are_read_with_and_or_and_brackets() {
    assert!(is_allowed("MIT OR LGPL-2.1-or-later"));
    assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(is_allowed("Apache-2.0/MIT"));
    assert!(is_allowed("Apache-2.0 WITH LLVM-exception"));
    assert!(!is_allowed("MIT AND GPL-3.0-only"));
    assert!(!is_allowed("(MIT AND GPL-3.0-only) OR MPL-2.0"));
    assert!(!is_allowed(""));
}

/// The comparison with peers has a lock file of its own, which nothing here builds with: it would be out of date unnoticed.
#[test]
fn the_comparison_with_peers_locks_what_the_index_depends_on() {
    let ours = locked_dependencies("Cargo.lock", "warmpath-kv");
    let theirs = locked_dependencies("tests/index-bench/Cargo.lock", "warmpath-kv");
    assert!(ours.contains("hashbrown"), "{ours:?}");
    // Of the root's, those for tests of the index are in its lock file only.
    let normal = dependencies(&cargo_metadata(), "warmpath-kv");
    let wanted: BTreeSet<&String> = ours.iter().filter(|name| normal.contains(*name)).collect();
    assert_eq!(
        theirs.iter().collect::<BTreeSet<_>>(),
        wanted,
        "run `cargo metadata` in tests/index-bench and commit its Cargo.lock"
    );
}

/// Names of what a lock file says that a package depends on.
fn locked_dependencies(file: &str, package: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(paths::root().join(file)).unwrap();
    let begin = format!("[[package]]\nname = \"{package}\"\n");
    let (_, entry) = text.split_once(&begin).unwrap_or_else(|| panic!("no {package} in {file}"));
    let (entry, _) = entry.split_once("[[package]]").unwrap_or((entry, ""));
    let (_, list) = entry.split_once("dependencies = [").unwrap();
    let names = list.lines().filter_map(|line| line.trim().strip_prefix('"')?.split([' ', '"']).next());
    names.map(str::to_owned).collect()
}

/// An SPDX expression that our list satisfies. `AND` binds tighter than `OR`; a slash is an old way to write `OR`.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    either(&mut rest) && rest.is_empty()
}

fn either(rest: &mut &[&str]) -> bool {
    let mut allowed = both(rest);
    while let ["OR", after @ ..] = rest {
        *rest = after;
        allowed |= both(rest);
    }
    allowed
}

fn both(rest: &mut &[&str]) -> bool {
    let mut allowed = one(rest);
    while let ["AND", after @ ..] = rest {
        *rest = after;
        allowed &= one(rest);
    }
    allowed
}

fn one(rest: &mut &[&str]) -> bool {
    match rest {
        ["(", after @ ..] => {
            *rest = after;
            let allowed = either(rest);
            let [")", after @ ..] = rest else { return false };
            *rest = after;
            allowed
        }
        [licence, "WITH", exception, after @ ..] => {
            let allowed = LICENCES.contains(&format!("{licence} WITH {exception}").as_str());
            *rest = after;
            allowed
        }
        [licence, after @ ..] => {
            let allowed = LICENCES.contains(licence);
            *rest = after;
            allowed
        }
        [] => false,
    }
}

#[test]
fn no_source_file_is_too_long() {
    let long: Vec<String> = sources()
        .into_iter()
        .filter(|path| !path.components().any(|part| part.as_os_str() == "generated"))
        .map(|path| (std::fs::read_to_string(&path).unwrap().lines().count(), path))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .map(|(lines, path)| format!("{}: {lines}", path.display()))
        .collect();
    assert!(long.is_empty(), "more than {LINES_MAX} lines:\n{}", long.join("\n"));
}

#[test]
fn modules_are_files_beside_their_folder() {
    let old: Vec<PathBuf> = sources().into_iter().filter(|path| path.ends_with("mod.rs")).collect();
    assert!(old.is_empty(), "x.rs beside x/, not x/mod.rs: {old:?}");
}

/// The layers of docs/architecture.md: what each pure crate may stand on, directly.
#[test]
fn pure_crates_have_no_further_dependencies() {
    let allowed = [
        ("warmpath-core", &["hashbrown", "serde", "serde_json", "siphasher", "thiserror"][..]),
        (
            "warmpath-kv",
            &["hashbrown", "parking_lot", "rmpv", "sha2", "siphasher", "thiserror", "xxhash-rust"][..],
        ),
        ("warmpath-standing", &["parking_lot", "serde", "warmpath-kv"][..]),
        ("warmpath-proto", &["prost", "tonic", "tonic-prost"][..]),
    ];
    let metadata = cargo_metadata();
    for (name, allowed) in allowed {
        let dependencies = dependencies(&metadata, name);
        let further: Vec<&String> =
            dependencies.iter().filter(|name| !allowed.contains(&name.as_str())).collect();
        assert!(further.is_empty(), "{name} may not depend on {further:?}");
    }
}

#[test]
fn the_emulator_shares_no_code_with_what_it_tests() {
    let dependencies = dependencies(&cargo_metadata(), "engine-emulator");
    let ours: Vec<&String> = dependencies.iter().filter(|name| name.starts_with("warmpath-")).collect();
    assert!(ours.is_empty(), "{ours:?}");
}

// B13 (huggingface/transformers#42914)
#[test]
fn what_reads_models_has_no_way_to_a_network() {
    // Files in a folder are all it knows: nothing in its whole graph could ask a hub, or anybody, for more.
    let clients = ["curl", "h2", "hf-hub", "hyper", "isahc", "minreq", "reqwest", "socket2", "tokio", "ureq"];
    let metadata = cargo_metadata();
    let graph = graph_of(&metadata, "warmpath-prompt");
    assert!(graph.len() > 30, "{graph:?}");
    let found: Vec<_> = clients.iter().filter(|name| graph.contains(**name)).collect();
    assert!(found.is_empty(), "warmpath-prompt reaches {found:?}");
}

/// A program that is older than its sources proves nothing, so a test must know all of them.
#[test]
fn what_a_program_is_built_from_is_known_crate_by_crate() {
    let metadata = cargo_metadata();
    let root = metadata["workspace_root"].as_str().unwrap();
    let folders: BTreeMap<&str, String> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| package["source"].is_null())
        .map(|package| {
            let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
            let folder = folder.strip_prefix(root).unwrap().join("src");
            (package["name"].as_str().unwrap(), folder.to_str().unwrap().to_owned())
        })
        .collect();
    for (program, known) in [
        ("warmpath-indexer", &paths::INDEXER_SOURCES[..]),
        ("warmpath-filter", &paths::FILTER_SOURCES),
        ("warmpath-web", &paths::WEB_SOURCES),
        ("engine-emulator", &paths::EMULATOR_SOURCES),
    ] {
        let graph = graph_of(&metadata, program);
        let ours = graph.iter().filter_map(|name| folders.get(name.as_str()));
        let known: BTreeSet<String> = known.iter().map(|folder| (*folder).to_owned()).collect();
        assert_eq!(ours.cloned().collect::<BTreeSet<_>>(), known, "{program}");
    }
}

/// Names of everything that a package is built with in this workspace, itself included.
fn graph_of(metadata: &Value, package: &str) -> BTreeSet<String> {
    let list = |value: &Value| value.as_array().unwrap().clone();
    let names: BTreeMap<String, String> = list(&metadata["packages"])
        .iter()
        .map(|p| (p["id"].as_str().unwrap().to_owned(), p["name"].as_str().unwrap().to_owned()))
        .collect();
    let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (node["id"].as_str().unwrap().to_owned(), node))
        .collect();
    let mut open: Vec<String> =
        names.iter().filter(|(_, name)| *name == package).map(|(id, _)| id.clone()).collect();
    let mut reached = BTreeSet::new();
    while let Some(id) = open.pop() {
        if reached.insert(id.clone()) {
            let dependencies = list(&nodes[&id]["deps"]).into_iter();
            let built =
                dependencies.filter(|dep| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()));
            open.extend(built.map(|dep| dep["pkg"].as_str().unwrap().to_owned()));
        }
    }
    reached.iter().map(|id| names[id].clone()).collect()
}

/// Names of the direct dependencies, those of tests left out.
fn dependencies(metadata: &Value, package: &str) -> BTreeSet<String> {
    let packages = metadata["packages"].as_array().unwrap();
    let package =
        packages.iter().find(|p| p["name"] == package).unwrap_or_else(|| panic!("no package {package}"));
    let all = package["dependencies"].as_array().unwrap().iter();
    all.filter(|d| d["kind"].is_null()).map(|d| d["name"].as_str().unwrap().to_owned()).collect()
}

/// Of what is built here; packages for other systems need not be in cargo's cache.
fn cargo_metadata() -> Value {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(paths::root()).args(["metadata", "--offline", "--locked", "--format-version", "1"]);
    let output = cargo.args(["--filter-platform", &host]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every Rust file of the repository.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["filter", "indexer", "proto", "tests"] {
        collect(&paths::root().join(folder), &mut found);
    }
    assert!(found.len() > 30, "{} files only: is this the whole repository?", found.len());
    found
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
