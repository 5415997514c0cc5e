//! See [`fuzz::kit_netlink`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::kit_netlink(data));
