//! See [`fuzz::reservation`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::reservation(data));
