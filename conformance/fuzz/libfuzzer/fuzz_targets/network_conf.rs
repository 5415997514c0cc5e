//! See [`fuzz::network_conf`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::network_conf(data));
