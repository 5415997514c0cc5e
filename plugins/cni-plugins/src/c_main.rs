//! C's `main` of the executables whose start counts, which calls the crate's `run`; `cluster` has this file, too.
//!
//! Rust's own start of a program reads the process's memory map and makes a second stack, for a message about a stack
//! that overflows: 65 us, an eighth of what a process takes that does nothing. [`skel::start`] does what else that start does.

#![expect(unsafe_code, reason = "C's start of a process looks for a function of this name and gives it C's arguments")]

use std::ffi::{CStr, c_char, c_int};

/// musl's own heap takes most sizes from the kernel one by one.
#[cfg(target_env = "musl")]
#[global_allocator]
static HEAP: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// The arguments come from here: `std::env::args` knows them only where libc passes them to what it runs before `main`, as glibc
/// does and musl does not.
#[unsafe(no_mangle)]
extern "C" fn main(_count: c_int, words: *const *const c_char) -> c_int {
    let words = (0..).map_while(|at| {
        // SAFETY: C, 5.1.2.2.1: the array and its strings live as long as the process, and the array ends with a null pointer,
        // behind which `map_while` does not read.
        let word = unsafe { (*words.add(at)).as_ref().map(|word| CStr::from_ptr(word)) };
        word.map(|word| word.to_string_lossy().into_owned())
    });
    crate::run(words).into()
}
