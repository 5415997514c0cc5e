//! See [`fuzz::kernel_values`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::kernel_values(data));
