//! See [`fuzz::kernel_words`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::kernel_words(data));
