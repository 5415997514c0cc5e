//! See [`fuzz::netlink_objects`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::netlink_objects(data));
