//! See [`fuzz::cni_args`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::cni_args(data));
