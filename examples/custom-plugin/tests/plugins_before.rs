//! The suite's plugins, which the tests chain `egress-mtu` after.

use std::process::ExitCode;

fn main() -> ExitCode {
    cni_plugins::main(std::env::args()).into()
}
