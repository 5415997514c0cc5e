//! See [`fuzz::dhcp_request`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::dhcp_request(data));
