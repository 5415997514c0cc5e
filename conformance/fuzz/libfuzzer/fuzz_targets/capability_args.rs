//! See [`fuzz::capability_args`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::capability_args(data));
