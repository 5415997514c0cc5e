//! See [`fuzz::kit_mounts`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::kit_mounts(data));
