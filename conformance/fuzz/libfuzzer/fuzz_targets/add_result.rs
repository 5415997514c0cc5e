//! See [`fuzz::add_result`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::add_result(data));
