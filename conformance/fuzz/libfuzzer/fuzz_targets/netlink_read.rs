//! See [`fuzz::netlink_read`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::netlink_read(data));
