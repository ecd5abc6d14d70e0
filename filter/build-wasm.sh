#!/usr/bin/env bash
# Builds the filter for Envoy: target/warmpath/filter.wasm (profile `wasm`, wasm32-unknown-unknown).
# wasm-toolchain.sh tells where the standard library for that target comes from.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source filter/wasm-toolchain.sh

# Envoy may have the file mapped or be reading it: replace it whole.
publish() {
  mkdir -p target/warmpath
  cp "$(wasm_folder)/warmpath_filter.wasm" target/warmpath/filter.wasm.new
  mv target/warmpath/filter.wasm.new target/warmpath/filter.wasm
  say "target/warmpath/filter.wasm, $(stat -c %s target/warmpath/filter.wasm) bytes"
}

cargo_for_wasm --package warmpath-filter
publish
