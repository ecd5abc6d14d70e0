//! Requests of other APIs to be rendered under libFuzzer: `make fuzz TARGET=conversions`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmpath_fuzz::conversions::check(input));
