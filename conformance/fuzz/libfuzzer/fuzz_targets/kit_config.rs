//! See [`fuzz::kit_config`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::kit_config(data));
