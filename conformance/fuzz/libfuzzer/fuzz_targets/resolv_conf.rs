//! See [`fuzz::resolv_conf`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::resolv_conf(data));
