//! See the library of the same name.
//!
//! Rust's own start of a program reads the process's memory map and makes a second stack, for a message about a stack
//! that overflows: 65 us, an eighth of what a process takes that does nothing. So this is C's `main`, and
//! [`skel::start`] does what else that start does.

#![no_main]
#![expect(unsafe_code, reason = "C's start of a process looks for a function of this name; it is exported once, here")]

use std::ffi::c_int;

#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    cni_plugins::main().into()
}
