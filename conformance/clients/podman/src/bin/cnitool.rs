//! The suite's `cnitool`, which installs the plugins.

use std::process::ExitCode;

fn main() -> ExitCode {
    cnitool::main()
}
