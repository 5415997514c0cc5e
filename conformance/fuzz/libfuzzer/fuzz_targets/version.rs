//! See [`fuzz::version`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::version(data));
