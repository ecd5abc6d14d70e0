//! Configuration files under libFuzzer: `make fuzz TARGET=config`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmpath_fuzz::config::check(input));
