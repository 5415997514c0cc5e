//! See [`fuzz::quantity`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::quantity(data));
