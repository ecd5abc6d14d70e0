//! `web-bindgen <module.wasm> <folder>`: writes `warmpath_web.js`, `warmpath_web_bg.wasm` and their types into the
//! folder, as ECMAScript modules that a page imports.
//!
//! It is what `wasm-bindgen --target web` does. That program must have exactly the version of the crate that the module
//! was built with; as a part of the workspace it cannot have another one (docs/decisions/0008-browser-build.md).

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let module = arguments.next().context("usage: web-bindgen <module.wasm> <folder>")?;
    let folder = arguments.next().context("usage: web-bindgen <module.wasm> <folder>")?;
    Bindgen::new()
        .input_path(&module)
        .web(true)?
        .typescript(true)
        // The page need not name the module: it lies beside the JavaScript.
        .omit_default_module_path(false)
        .generate(&folder)
        .with_context(|| format!("cannot write bindings of {} to {}", module.display(), folder.display()))
}
