//! Has the linker put the functions that the usual calls execute side by side, in the order of `layout.txt`.
//!
//! The kernel maps an executable around each page that is touched, so functions here and there have all of it in memory for
//! each call: 3.4 MiB instead of 2.3, and a tenth of the time of a short call. Names that are not there any more do no harm,
//! but what has a new name is left out: `conformance/bench/exact --layout` writes the file anew, and its limits say when
//! that is due.

#![expect(clippy::disallowed_methods, reason = "cargo tells a build script by variables")]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=layout.txt");
    let is = |key: &str, value: &str| env::var(key).is_ok_and(|found| found == value);
    // The names are of this target, the option is of lld, which is its linker unless somebody asks for another.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let is_lld = is("TARGET", "x86_64-unknown-linux-gnu")
        && env::var_os("RUSTC_LINKER").is_none()
        && !["linker", "fuse-ld", "link-self-contained"].iter().any(|word| flags.contains(word));
    if is("PROFILE", "release") && is_lld {
        let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bins=-Wl,--symbol-ordering-file={folder}/layout.txt");
        println!("cargo::rustc-link-arg-bins=-Wl,--no-warn-symbol-ordering");
    }
}
