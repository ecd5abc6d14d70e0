//! Request bodies under libFuzzer: `make fuzz TARGET=body`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmpath_fuzz::body::check(input));
