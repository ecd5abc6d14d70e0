# The toolchain for wasm32-unknown-unknown, for the scripts that build for it: source it, then call `cargo_for_wasm`.
#
# The Rust standard library for that target is taken from the first of these that is there:
#   1. the active toolchain                      (what `rustup target add wasm32-unknown-unknown` gives)
#   2. a private toolchain made by an earlier 5.
#   3. rustup, asked to fetch the target         (where it can reach its server)
#   4. the active toolchain's rust-src component, compiled with -Zbuild-std
#   5. on Debian: the packages of its newest Rust (rustc-web), unpacked into a cache folder and never installed,
#      their library compiled once for the target. About 150 MB to fetch, 500 MB on disk, 2 to 4 minutes.
#
# std and rustc must be of the same version, so 5. brings a compiler of its own; cargo stays the user's.
#
#   WARMPATH_WASM_TOOLCHAIN   place of the private toolchain; default ${XDG_CACHE_HOME:-~/.cache}/warmpath/wasm-rust
# shellcheck shell=bash

readonly target=wasm32-unknown-unknown
readonly rustup_patience_s=60
readonly cache=${WARMPATH_WASM_TOOLCHAIN:-${XDG_CACHE_HOME:-$HOME/.cache}/warmpath/wasm-rust}

say() { printf 'wasm: %s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

# === which standard library ===

active_has_target() {
  local lib
  lib=$(rustc --print target-libdir --target "$target" 2>/dev/null) && compgen -G "$lib/libstd-*.rlib" >/dev/null
}

active_has_source() { [[ -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library/std" ]]; }

private_is_complete() { [[ -e $cache/complete ]]; }

rustup_fetches_target() {
  command -v rustup >/dev/null || return 1
  say "asking rustup for the target $target (at most $rustup_patience_s s)"
  timeout "$rustup_patience_s" rustup target add "$target" >/dev/null 2>&1 && active_has_target
}

choose() {
  if active_has_target; then echo active
  elif private_is_complete; then echo private
  elif rustup_fetches_target; then echo active
  elif active_has_source; then echo source
  else make_private && echo private
  fi
}

# === the private toolchain ===

# Package lists may be missing (a fresh container) or older than the archive. Refreshing them needs root.
refresh_package_lists() {
  say "refreshing the package lists"
  if [[ $EUID -eq 0 ]]; then apt-get update -qq >&2
  elif command -v sudo >/dev/null; then sudo apt-get update -qq >&2
  else fail "the package lists are out of date and only root can refresh them: run 'apt-get update' as root, or 'rustup target add $target'"
  fi
}

fetch_packages() { apt-get download -qq -o APT::Sandbox::User=root "$@" >&2; }

# The first package of this name pattern that a downloaded package depends on.
dependency() { dpkg-deb -f "$1" Depends | grep -oE "$2" | head -n 1; }

# Downloads compiler, its library for the host, the library's source, and the LLVM and linker they were made with.
# Only the first three names are fixed: the others follow from their dependencies, so an update needs no edit here.
fetch_toolchain() {
  local first=(rustc-web libstd-rust-web-dev rust-web-src) library llvm
  fetch_packages "${first[@]}" 2>/dev/null || { refresh_package_lists; fetch_packages "${first[@]}"; } ||
    fail "this system offers no Rust source package: run 'rustup target add $target' where rustup has a network"
  library=$(dependency libstd-rust-web-dev_*.deb 'libstd-rust-web-[0-9.]+')
  fetch_packages "$library"
  llvm=$(dependency "$library"_*.deb 'libllvm[0-9]+')
  fetch_packages "$llvm" "lld-${llvm#libllvm}"
}

# Unpacks every package into $2; of the source package only what compiling the library needs.
unpack_toolchain() {
  local package
  for package in "$1"/*.deb; do
    case $package in
      */rust-web-src*)
        dpkg-deb --fsys-tarfile "$package" |
          tar -x -C "$2" --wildcards './usr/lib/rustlib/src*' './usr/src/rustc-*/library/*' ;;
      *) dpkg-deb -x "$package" "$2" ;;
    esac
  done
}

# A launcher beside the unpacked root, so that program $3 finds its libraries in $2 wherever the folder is moved.
write_launcher() { # file, library folder, program; both relative to the unpacked root
  cat >"$1" <<LAUNCHER
#!/bin/sh
here=\$(dirname "\$(readlink -f "\$0")")
LD_LIBRARY_PATH=\$here/root/$2\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH} exec "\$here/root/$3" "\$@"
LAUNCHER
  chmod +x "$1"
}

# Compiles std for the target by building an empty crate, and puts the result where the private rustc looks for it.
compile_library() { # folder of the private toolchain
  local crate=$1/std library=$1/root/usr/lib/rustlib/$target/lib
  mkdir -p "$crate/src" "$library"
  : >"$crate/src/lib.rs"
  cat >"$crate/Cargo.toml" <<'MANIFEST'
[package]
name = "std-for-wasm"
version = "0.0.0"
edition = "2021"

[profile.release]
panic = "abort"

[workspace]
MANIFEST
  # Bitcode in the library, because the filter is built with link-time optimisation.
  (cd "$crate" && env -u CARGO_BUILD_TARGET -u CARGO_ENCODED_RUSTFLAGS \
    RUSTC="$1/rustc" RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Cembed-bitcode=yes CARGO_TARGET_DIR="$crate/target" \
    cargo build --quiet --release --target "$target" -Zbuild-std=std,panic_abort)
  cp "$crate/target/$target/release/deps/"*.rlib "$library"
  rm -rf "$library"/libstd_for_wasm* "$crate" "$1"/root/usr/src "$1"/root/usr/lib/rustlib/src
}

make_private() {
  local tool libraries linker
  for tool in apt-get dpkg-deb flock cc; do
    command -v "$tool" >/dev/null ||
      fail "no standard library for $target, and none can be made here ($tool is missing): run 'rustup target add $target'"
  done
  mkdir -p "$(dirname "$cache")"
  exec 9>"$cache.lock"
  flock --nonblock 9 || { say "another build is preparing $cache; waiting for it"; flock 9; }
  private_is_complete && return 0

  say "no standard library for $target; making one in $cache from Debian's Rust packages (once, 2 to 4 minutes)"
  rm -rf "$cache"
  mkdir -p "$cache/packages" "$cache/root"
  say "1/3 fetching about 150 MB"
  (cd "$cache/packages" && fetch_toolchain)
  say "2/3 unpacking"
  unpack_toolchain "$cache/packages" "$cache/root"
  rm -rf "$cache/packages"
  libraries=$(cd "$cache/root" && dirname "$(find usr/lib -name 'librustc_driver-*.so' | head -n 1)")
  linker=$(cd "$cache/root" && find usr/bin -name 'wasm-ld-*' | head -n 1)
  write_launcher "$cache/rustc" "$libraries" usr/bin/rustc
  write_launcher "$cache/wasm-ld" "$libraries" "$linker"
  say "3/3 compiling the library"
  compile_library "$cache"
  touch "$cache/complete"
  exec 9>&-
}

# === building ===

# `cargo build` for the target with the profile of what runs in wasm; further arguments name the package.
cargo_for_wasm() {
  local build=(cargo build --profile wasm --target "$target" "$@") library
  library=$(choose)
  case $library in
    active) "${build[@]}" ;;
    source) RUSTC_BOOTSTRAP=1 "${build[@]}" -Zbuild-std=std,panic_abort ;;
    private) RUSTC="$cache/rustc" CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER="$cache/wasm-ld" "${build[@]}" ;;
  esac
}

# Where cargo_for_wasm leaves its modules.
wasm_folder() { echo "${CARGO_TARGET_DIR:-target}/$target/wasm"; }
