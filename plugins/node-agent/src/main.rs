//! See the library.

use std::process::ExitCode;

/// musl's own heap takes most sizes from the kernel one by one.
#[cfg(target_env = "musl")]
#[global_allocator]
static HEAP: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    node_agent::main()
}
