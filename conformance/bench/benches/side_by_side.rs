//! `cargo bench --package bench`; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::main()
}
