//! Answers of engines under libFuzzer: `make fuzz TARGET=answer`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmpath_fuzz::answer::check(input));
