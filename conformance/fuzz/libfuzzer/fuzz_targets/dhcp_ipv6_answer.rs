//! See [`fuzz::dhcp_ipv6_answer`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::dhcp_ipv6_answer(data));
