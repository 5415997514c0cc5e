//! The plugin as an executable of its own, for this crate's tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    skel::main::<host_local::HostLocal>()
}
