//! See [`fuzz::dhcp_answer`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::dhcp_answer(data));
