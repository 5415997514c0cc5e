//! See [`fuzz::host_local_conf`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::host_local_conf(data));
