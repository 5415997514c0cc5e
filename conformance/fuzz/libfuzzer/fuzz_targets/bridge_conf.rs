//! See [`fuzz::bridge_conf`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::bridge_conf(data));
