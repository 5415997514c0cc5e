//! The benchmark as a program of its own, for its tests; `cargo bench --package bench` runs `benches/side_by_side.rs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::main()
}
