//! What the documents name is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use warmpath_tests::paths;

/// Every Markdown file of the repository.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&paths::root(), "md", &mut found);
    assert!(found.len() > 8, "{} documents only: is this the whole repository?", found.len());
    found
}

fn collect(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            collect(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(paths::root().join(path)).unwrap()
}

/// What stands between single backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with("```")).flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = document.parent().unwrap().join(file);
            let target = if file.is_empty() { &document } else { &target };
            let leads = target.exists()
                && (heading.is_empty()
                    || headings(&std::fs::read_to_string(target).unwrap()).contains(heading));
            if !leads {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

/// The names by which the headings of a document are linked to: small letters and digits, a hyphen for each space.
fn headings(text: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let letters = line.trim_start_matches('#').trim().to_lowercase();
        let letters = letters.chars().map(|c| if c == ' ' { '-' } else { c });
        letters.filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    };
    text.lines().filter(|line| line.starts_with('#')).map(name).collect()
}

#[test]
fn headings_are_linked_to_by_their_letters() {
    let known = headings("# Exact again\n## A, B and C: together?\ntext\n### `vllm`");
    let names = ["exact-again", "a-b-and-c-together", "vllm"].map(str::to_owned);
    assert_eq!(known, BTreeSet::from(names));
}

#[test]
fn every_test_that_failure_modes_names_exists() {
    let mut sources = Vec::new();
    collect(&paths::root(), "rs", &mut sources);
    let code: String = sources.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let failure_modes = read("docs/failure-modes.md");
    // The last cell of a table's row holds nothing but names of tests.
    let rows = failure_modes.lines().filter(|line| line.starts_with('|') && line.ends_with('|'));
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    let named: BTreeSet<&str> =
        cells.flat_map(quoted).filter(|name| name.matches('_').count() >= 3).collect();
    assert!(named.len() > 10, "{named:?}");
    let missing: Vec<_> = named.iter().filter(|name| !code.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "no test has these names: {missing:?}");
}

#[test]
fn every_row_of_failure_modes_names_a_test() {
    let failure_modes = read("docs/failure-modes.md");
    let mut shows_tests = false;
    let mut rows = 0;
    let mut without = Vec::new();
    for line in failure_modes.lines() {
        let is_row = line.starts_with('|') && line.ends_with('|');
        let is_header = is_row && line.ends_with("| test |");
        shows_tests = is_header || is_row && shows_tests;
        if shows_tests && !is_header && !line.starts_with("|---") {
            rows += 1;
            let cell = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
            if !quoted(cell).any(|name| name.matches('_').count() >= 3) {
                without.push(line);
            }
        }
    }
    assert!(rows > 30, "{rows} rows only");
    assert!(without.is_empty(), "rows without a test:\n{}", without.join("\n"));
}

#[test]
fn every_metric_that_a_document_names_is_listed_with_its_code() {
    let lists = [read("indexer/README.md"), read("filter/README.md")].concat();
    let mut missing = Vec::new();
    for document in ["README.md", "docs/metrics.md", "docs/failure-modes.md", "docs/configuration.md"] {
        let text = read(document);
        for name in quoted(&text).filter_map(|quoted| quoted.split_whitespace().next()) {
            let name = name.split(['{', '.', '(', ')', ',']).next().unwrap_or_default();
            let is_metric = name.starts_with("warmpath_") && !name.contains("::") && !name.ends_with('_');
            let family = name.trim_end_matches("_total");
            if is_metric && !lists.contains(family) {
                missing.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "metrics that no README lists:\n{}", missing.join("\n"));
}

#[test]
fn no_test_is_ignored() {
    let mut sources = Vec::new();
    collect(&paths::root(), "rs", &mut sources);
    // Written in two parts, so that this file is not found.
    let ignore = concat!("#[", "ignore");
    let ignored: Vec<_> =
        sources.into_iter().filter(|path| std::fs::read_to_string(path).unwrap().contains(ignore)).collect();
    assert!(ignored.is_empty(), "{ignored:?}");
}
