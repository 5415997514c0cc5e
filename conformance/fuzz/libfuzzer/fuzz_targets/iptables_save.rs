//! See [`fuzz::iptables_save`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::iptables_save(data));
