//! The plugins, as `cni-plugins` has them.

use std::process::ExitCode;

fn main() -> ExitCode {
    cni_plugins::main()
}
