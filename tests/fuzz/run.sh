#!/usr/bin/env bash
# Fuzzes one target with libFuzzer, on stable Rust.
# usage: tests/fuzz/run.sh <target> <seconds> [further options of libFuzzer]
#
# New inputs that reach new code go to target/fuzz/corpus/<target> and are used again; inputs that fail go to
# target/fuzz/failed/<target>. docs/decisions/0009-fuzzing.md tells why it is done this way.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly target=${1:?which target?} seconds=${2:?how many seconds?}
shift 2

# The longest that one input may take, and the most memory. A template that comes with a request may use all of the 4
# million steps that rendering is allowed, several times in one check, with counters in every branch.
readonly patience_s=60 memory_mib=2048

# The words that inputs are made of, and what must be built beside what every target needs.
features=libfuzzer
case $target in
  events) dictionary=events ;;
  config) dictionary=yaml features+=,config ;;
  prompt | conversions) dictionary=json features+=,prompt ;;
  *) dictionary=json ;;
esac
seeds=tests/fuzz/corpus/$target
[[ -d $seeds ]] || { echo "fuzz: no target $target; there are: $(ls -x tests/fuzz/corpus)" >&2; exit 1; }

# The counters that libFuzzer reads, in everything that is compiled for the target; build scripts and macros, which are
# compiled for the host, have none. A folder of its own, so that other builds keep theirs.
host=$(rustc -vV | sed -n 's/^host: //p')
passes=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares)
RUSTFLAGS="${passes[*]}" cargo build --quiet --package warmpath-fuzz --bin "$target" --no-default-features \
  --features "$features" --profile fuzz --target "$host" --target-dir target/fuzz

found=target/fuzz/corpus/$target failed=target/fuzz/failed/$target
mkdir -p "$found" "$failed"
exec "target/fuzz/$host/fuzz/$target" "$found" "$seeds" -dict="tests/fuzz/dictionaries/$dictionary.dict" \
  -artifact_prefix="$failed/" -max_total_time="$seconds" -timeout="$patience_s" -rss_limit_mb="$memory_mib" \
  -max_len=65536 -print_final_stats=1 "$@"
