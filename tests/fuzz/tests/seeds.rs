//! The committed inputs through every check.

use std::path::Path;

use warmpath_fuzz::{TARGETS, Target};

#[test]
fn every_seed_holds() {
    for Target { name, check } in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut seeds = 0;
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            check(&std::fs::read(&path).unwrap());
            seeds += 1;
        }
        assert!(seeds >= 3, "{seeds} seeds in {}", folder.display());
    }
}

#[test]
fn every_target_has_a_program() {
    let bins = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin");
    let mut programs: Vec<String> = bins
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    programs.sort();
    let targets: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(programs, targets);
}
