//! The decoder that `FUZZ_TARGET` names, one of [`fuzz::TARGETS`].
#![no_main]

use std::sync::LazyLock;

static RUN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a decoder");
    fuzz::TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no decoder is called {name}")).run
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| RUN(data));
