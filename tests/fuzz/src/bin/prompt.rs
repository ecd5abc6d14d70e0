//! Chats to be rendered under libFuzzer: `make fuzz TARGET=prompt`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmpath_fuzz::prompt::check(input));
