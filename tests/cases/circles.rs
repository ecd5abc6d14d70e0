//! Modules stand on each other in one direction: none of them reaches itself through another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use warmpath_tests::paths;

/// Crates that are held to it.
const CRATES: [&str; 6] =
    ["filter/core", "filter", "indexer", "indexer/core", "indexer/prompt", "indexer/standing"];

/// A module by its path in the crate; of the crate's root it is empty.
type Module = Vec<String>;

#[test]
fn modules_of_a_crate_go_in_no_circle() {
    for name in CRATES {
        let sources = sources(&paths::root().join(name).join("src"));
        assert!(sources.len() > 5, "{name} has {} files only: is this all of it?", sources.len());
        let circles = circles(&sources);
        assert!(circles.is_empty(), "{name}: {circles:?}");
    }
}

#[test]
fn a_circle_is_found_over_files_and_folders() {
    let sources = |list: &[(&str, &str)]| -> BTreeMap<Module, String> {
        list.iter().map(|(path, text)| (split(path), (*text).to_owned())).collect()
    };
    let straight = [("a", "use crate::b::{self, B};"), ("b", "use crate::c::x;"), ("c", ""), ("c::d", "")];
    assert_eq!(circles(&sources(&straight)), Vec::<BTreeSet<Module>>::new());
    for (text, circle) in [
        ("use crate::a::A;", vec!["a", "b", "c"]),
        ("fn f() { super::super::b::g() }", vec!["b", "c"]),
        ("use super::super::{Up, b};", vec!["b", "c"]),
    ] {
        let mut all = sources(&straight);
        all.insert(split("c::d"), text.to_owned());
        assert_eq!(circles(&all), [circle.into_iter().map(split).collect()], "{text}");
    }
    // Comments, and what only tests use, make none.
    let mut all = sources(&straight);
    all.insert(split("c::d"), "// crate::a\n#[cfg(test)]\nmod tests { use crate::a::A; }".to_owned());
    assert!(circles(&all).is_empty());
}

fn split(path: &str) -> Module {
    path.split("::").map(str::to_owned).collect()
}

/// The text of each module; those of tests are left out.
fn sources(root: &Path) -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![(root.to_owned(), Module::new())];
    while let Some((folder, module)) = open.pop() {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let inner = [module.as_slice(), std::slice::from_ref(&name)].concat();
            if name == "tests" || module.is_empty() && (name == "lib" || name == "main") {
                continue;
            }
            if path.is_dir() {
                open.push((path, inner));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.insert(inner, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// Groups of modules beside each other of which each reaches all others.
fn circles(sources: &BTreeMap<Module, String>) -> Vec<BTreeSet<Module>> {
    let mut uses: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, text) in sources {
        for used in named(module, text) {
            let same = module.iter().zip(&used).take_while(|(a, b)| a == b).count();
            let (Some(from), Some(to)) = (module.get(..=same), used.get(..=same)) else { continue };
            if sources.contains_key(to) {
                uses.entry(from.to_vec()).or_default().insert(to.to_vec());
            }
        }
    }
    let reached = |from: &Module| {
        let mut reached = BTreeSet::new();
        let mut open = vec![from.clone()];
        while let Some(next) = open.pop().and_then(|module| uses.get(&module)) {
            open.extend(next.iter().filter(|module| reached.insert((*module).clone())).cloned());
        }
        reached
    };
    let all: BTreeMap<&Module, BTreeSet<Module>> = uses.keys().map(|from| (from, reached(from))).collect();
    let circle = |(from, to): (&&Module, &BTreeSet<Module>)| {
        let together = to.iter().filter(|other| all.get(other).is_some_and(|back| back.contains(*from)));
        together.cloned().collect::<BTreeSet<Module>>()
    };
    let found: BTreeSet<BTreeSet<Module>> =
        all.iter().map(circle).filter(|circle| !circle.is_empty()).collect();
    found.into_iter().collect()
}

/// The modules that the text of `module` names by `crate::` or `super::`, with what follows in them.
fn named(module: &Module, text: &str) -> Vec<Module> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code: String = code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        let before = code.get(..at).unwrap_or_default();
        if before.ends_with("::") || before.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let mut rest = code.get(at..).unwrap_or_default();
        let mut base = module.as_slice();
        while let Some(after) = rest.strip_prefix("super::") {
            (rest, base) = (after, base.get(..base.len().saturating_sub(1)).unwrap_or_default());
        }
        if let Some(after) = rest.strip_prefix("crate::") {
            (rest, base) = (after, &[]);
        }
        for path in paths_of(rest) {
            found.push([base, &split(path)].concat());
        }
    }
    found
}

/// The path at the beginning, or each of those between its braces.
fn paths_of(rest: &str) -> Vec<&str> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let one = |text: &str| text.len() - text.trim_start_matches(is_path).len();
    let Some(list) = rest.strip_prefix('{') else {
        return vec![rest.get(..one(rest)).unwrap_or_default().trim_end_matches(':')];
    };
    let mut paths = Vec::new();
    let (mut depth, mut begins) = (0usize, true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            _ if begins && is_path(c) => {
                begins = false;
                let item = list.get(at..).unwrap_or_default();
                paths.push(item.get(..one(item)).unwrap_or_default().trim_end_matches(':'));
            }
            _ => {}
        }
    }
    paths
}
