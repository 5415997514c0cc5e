//! See [`fuzz::tolerance`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::tolerance(data));
