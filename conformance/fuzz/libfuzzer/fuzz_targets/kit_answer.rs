//! See [`fuzz::kit_answer`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::kit_answer(data));
