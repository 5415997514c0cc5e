//! The kit, as a test of it starts it.

use std::process::ExitCode;

fn main() -> ExitCode {
    cni_conformance::main()
}
