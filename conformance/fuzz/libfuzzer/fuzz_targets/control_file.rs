//! See [`fuzz::control_file`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::control_file(data));
