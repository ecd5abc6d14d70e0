//! Event payloads under libFuzzer: `make fuzz TARGET=events`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmpath_fuzz::events::check(input));
