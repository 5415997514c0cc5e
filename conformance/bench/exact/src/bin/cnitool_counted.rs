//! `cnitool`.

use std::process::ExitCode;

fn main() -> ExitCode {
    cnitool::main()
}
