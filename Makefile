# Names for people. Everything is run from here, by people and by .ci/run alike.
#
#   make demo    two emulated engines, Envoy and the indexer; the same load three times; one table
#   make test    everything that must hold: format, lints, unit tests, filter.wasm, end-to-end cases with real Envoy

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Where cargo puts programs. What is fetched or is no program of this machine (Envoy, filter.wasm) is in target/ always.
BIN := $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: help setup setup-run wasm web demo test lint fmt bench bench-index soak-events chaos outage starts mirror-load overhead schedules lab lab-sweep lab-envoy fuzz clean

help:
	@printf '%s\n' \
  'make demo    two emulated engines, Envoy and the indexer; the same load three times; one table' \
  'make test    everything that must hold: format, lints, unit tests, filter.wasm, end-to-end cases' \
  'make wasm    the filter for Envoy: target/warmpath/filter.wasm' \
  'make web     the request reader and the cost rule for browsers: target/warmpath/web/' \
  'make lint    format and lints only' \
  'make fmt     format the code' \
  'make bench   the benchmarks of every crate that has some' \
  'make bench-index TRACE=FILE: the index beside two peers, in one run: a table, and target/bench/index.json' \
  'make soak-events EVENTS=10000000: events over real sockets with faults; the index must become exact after each' \
  'make chaos   COUNT=200 SEED=1 SECONDS=30 JOBS=4: random faults in everything, under load through Envoy' \
  'make outage  SECONDS=10: the same requests with Redis or the indexers frozen, killed and there, beside each other' \
  'make starts: an indexer that starts beside full engines, with Redis, without, and with a peer: until ready, until exact' \
  'make mirror-load SECONDS=40: events of 100,000 blocks a second without a mirror, and with one, beside each other' \
  'make overhead: what Warmpath adds to a request, beside an Envoy without the filter and beside a bare call' \
  'make schedules COUNT=100000: random schedules of faults through sequencer and index, in one process' \
  'make lab     TRACES=DIR SEEDS=3: every load under every policy, simulated: table, plots, target/lab/results.json' \
  'make lab-sweep TRACES=DIR GROUP=lambda: variants of the cost rule over the same loads' \
  'make lab-envoy: small loads through real Envoy, filter, indexer and emulated engines, each beside its simulation' \
  'make fuzz    TARGET=body SECONDS=600: random inputs for one target (body, answer, prompt, conversions, events, config)' \
  'make setup   what the others need: system packages, Envoy, tokenizer files (they call what they need of it themselves)' \
  'make clean   remove build results; what was fetched stays in the cache folder'

# What the tests take: besides what running takes, Redis and a browser.
setup:
	tests/setup.sh

setup-run:
	tests/setup.sh run

# The filter is no default member of the workspace: on the host it can be checked but not linked.
lint:
	cargo fmt --all --check
	cargo fmt --manifest-path tests/index-bench/Cargo.toml --check
	cargo clippy --quiet --all-targets -- -D warnings
	cargo clippy --quiet --package warmpath-filter --package web-bindgen --all-targets -- -D warnings

fmt:
	cargo fmt --all
	cargo fmt --manifest-path tests/index-bench/Cargo.toml

wasm: setup-run
	filter/build-wasm.sh

web: setup-run
	filter/web/build.sh

test: setup lint wasm web
	cargo test

demo: wasm
	cargo build --release --package warmpath-indexer --package engine-emulator --package warmpath-tests --bins
	$(BIN)/demo

bench: setup
	cargo bench --benches

# A workspace of its own, so that nothing of the peers is in the lock file of the product.
bench-index:
	cargo build --quiet --release --locked --manifest-path tests/index-bench/Cargo.toml --target-dir target/index-bench
	target/index-bench/release/index-bench $(if $(TRACE),--trace $(TRACE)) --out target/bench/index.json

soak-events: EVENTS ?= 10000000
soak-events: SEED ?= 1
soak-events:
	cargo build --release --package warmpath-indexer --package engine-emulator --package warmpath-tests --bins
	$(BIN)/soak-events --events $(EVENTS) --seed $(SEED)

chaos: COUNT ?= 200
chaos: SEED ?= 1
chaos: SECONDS ?= 30
chaos: JOBS ?= 4
chaos: setup wasm
	cargo build --release --package warmpath-indexer --package engine-emulator --package warmpath-tests --bins
	$(BIN)/chaos --count $(COUNT) --seed $(SEED) --seconds $(SECONDS) --jobs $(JOBS)

outage: SECONDS ?= 10
outage: setup wasm
	cargo build --release --package warmpath-indexer --package engine-emulator --package warmpath-tests --bins
	$(BIN)/outage --seconds $(SECONDS)

starts: setup
	cargo build --release --package warmpath-indexer --package engine-emulator --package warmpath-tests --bins
	$(BIN)/starts

mirror-load: SECONDS ?= 40
mirror-load: setup
	cargo build --release --package warmpath-indexer --package engine-emulator --package warmpath-tests --bins
	$(BIN)/mirror-load --seconds $(SECONDS)

overhead: wasm
	cargo build --release --package warmpath-indexer --package engine-emulator --package warmpath-tests --bins
	$(BIN)/overhead

schedules: COUNT ?= 100000
schedules: FROM ?= 0
schedules:
	WARMPATH_SCHEDULES=$(COUNT) WARMPATH_SCHEDULES_FROM=$(FROM) \
	  cargo test --release --package warmpath-kv --test schedules -- --nocapture a_live_stream

# The simulator only: no Envoy, no engines, no tokenizers.
LAB = $(BIN)/lab
LAB_FLAGS = $(if $(TRACES),--traces $(TRACES)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(LOADS),--loads $(LOADS))

lab:
	cargo build --quiet --release --package warmpath-lab --bin lab
	$(LAB) calibrate
	$(LAB) simulate $(LAB_FLAGS)

lab-sweep:
	cargo build --quiet --release --package warmpath-lab --bin lab
	$(LAB) sweep --details $(LAB_FLAGS) $(if $(GROUP),--group $(GROUP))

lab-envoy: wasm
	cargo build --release --package warmpath-indexer --package engine-emulator --package warmpath-tests --bins
	$(BIN)/lab-envoy $(if $(LOADS),--loads $(LOADS))

fuzz: TARGET ?= body
fuzz: SECONDS ?= 600
fuzz: setup
	tests/fuzz/run.sh $(TARGET) $(SECONDS)

clean:
	cargo clean
