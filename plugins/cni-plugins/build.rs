//! Has the linker write the build ID, by which a plugin knows a copy of itself (`skel::build_id`); and put the functions that
//! the usual calls execute side by side, if the build is asked to.
//!
//! `CNI_FUNCTION_ORDER` names a folder with a file of function names for each executable, as `conformance/bench/release` makes
//! them. The kernel maps an executable around each page that is touched, so functions here and there have all of it in
//! memory for each call. Without the variable every build command makes the same executable.

#![expect(clippy::disallowed_methods, reason = "cargo passes variables to a build script")]

use std::env;

fn main() {
    // All linkers of Linux know the option, and gcc passes it in most distributions' builds.
    println!("cargo::rustc-link-arg-bins=-Wl,--build-id=sha1");
    println!("cargo::rerun-if-env-changed=CNI_FUNCTION_ORDER");
    let (Ok(folder), Ok(package)) = (env::var("CNI_FUNCTION_ORDER"), env::var("CARGO_PKG_NAME")) else { return };
    println!("cargo::rerun-if-changed={folder}/{package}");
    println!("cargo::rustc-link-arg-bins=-Wl,--symbol-ordering-file={folder}/{package}");
    println!("cargo::rustc-link-arg-bins=-Wl,--no-warn-symbol-ordering");
}
