//! See [`fuzz::manifests`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::manifests(data));
