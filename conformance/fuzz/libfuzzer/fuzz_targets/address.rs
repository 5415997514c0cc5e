//! See [`fuzz::address`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::address(data));
