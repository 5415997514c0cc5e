//! See [`fuzz::nft_replies`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::nft_replies(data));
