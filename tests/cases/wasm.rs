//! `filter.wasm` asks nothing of its host but what Envoy offers: a module that imports anything else is refused when
//! Envoy starts. A dependency that reaches for a clock or for entropy of a browser is enough for that.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use warmpath_tests::paths;

const MAGIC_AND_VERSION: [u8; 8] = *b"\0asm\x01\0\0\0";
const IMPORT_SECTION: u8 = 2;

#[test]
fn the_filter_imports_host_calls_only() {
    let module = std::fs::read(paths::filter_wasm().unwrap()).unwrap();
    let imports = imports(&module).unwrap();
    let modules: BTreeSet<&str> = imports.iter().map(|(module, _)| module.as_str()).collect();
    assert_eq!(modules, BTreeSet::from(["env"]), "{imports:?}");
    let strange: Vec<_> = imports.iter().filter(|(_, name)| !name.starts_with("proxy_")).collect();
    assert!(strange.is_empty(), "{strange:?}");
}

#[test]
fn the_reader_finds_the_imports_of_a_module() {
    let module = [
        &MAGIC_AND_VERSION[..],
        b"\x01\x04\x01\x60\0\0", // types: one function without arguments
        b"\x02\x1b\x02\x03env\x07proxy_x\0\0\x04wasi\x01m\x02\x01\x01\x80\x01", // imports: a function, a memory
    ]
    .concat();
    let found = imports(&module).unwrap();
    assert_eq!(found, [("env".to_owned(), "proxy_x".to_owned()), ("wasi".to_owned(), "m".to_owned())]);
}

/// Module and name of every import.
fn imports(module: &[u8]) -> Result<Vec<(String, String)>> {
    let mut rest = module.strip_prefix(&MAGIC_AND_VERSION[..]).context("no WebAssembly 1 module")?;
    while let Some((&section, after)) = rest.split_first() {
        rest = after;
        let length = length(&mut rest)?;
        let mut content = take(&mut rest, length)?;
        if section == IMPORT_SECTION {
            return import_section(&mut content);
        }
    }
    Ok(Vec::new())
}

fn import_section(bytes: &mut &[u8]) -> Result<Vec<(String, String)>> {
    let count = length(bytes)?;
    (0..count)
        .map(|_| {
            let import = (name(bytes)?, name(bytes)?);
            skip_description(bytes)?;
            Ok(import)
        })
        .collect()
}

/// What is imported: a function's type, a table, a memory or a global.
fn skip_description(bytes: &mut &[u8]) -> Result<()> {
    match take(bytes, 1)?[0] {
        0 => drop(length(bytes)?),
        1 => {
            take(bytes, 1)?;
            skip_limits(bytes)?;
        }
        2 => skip_limits(bytes)?,
        3 => drop(take(bytes, 2)?),
        other => anyhow::bail!("no import is of kind {other}"),
    }
    Ok(())
}

fn skip_limits(bytes: &mut &[u8]) -> Result<()> {
    let has_maximum = take(bytes, 1)?[0] & 1 == 1;
    length(bytes)?;
    if has_maximum {
        length(bytes)?;
    }
    Ok(())
}

fn name(bytes: &mut &[u8]) -> Result<String> {
    let length = length(bytes)?;
    Ok(String::from_utf8(take(bytes, length)?.to_vec())?)
}

/// An unsigned LEB128 number.
fn length(bytes: &mut &[u8]) -> Result<usize> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let byte = take(bytes, 1)?[0];
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    anyhow::bail!("a number of more than 35 bits")
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8]> {
    ensure!(count <= bytes.len(), "the module ends early");
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    Ok(taken)
}
