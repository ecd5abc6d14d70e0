#!/usr/bin/env bash
# Builds warmpath-web for browsers: target/warmpath/web/ with warmpath_web.js, warmpath_web_bg.wasm and their types.
# A page imports the first: `import init, { extract } from "./warmpath_web.js"; await init();`.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source filter/wasm-toolchain.sh

readonly out=target/warmpath/web

cargo_for_wasm --package warmpath-web
rm -rf "$out.new"
cargo run --quiet --package web-bindgen -- "$(wasm_folder)/warmpath_web.wasm" "$out.new"
rm -rf "$out"
mv "$out.new" "$out"
say "$out/warmpath_web_bg.wasm, $(stat -c %s "$out/warmpath_web_bg.wasm") bytes"
