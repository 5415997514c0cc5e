//! See [`fuzz::version_reply`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::version_reply(data));
