//! See [`fuzz::error_object`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::error_object(data));
