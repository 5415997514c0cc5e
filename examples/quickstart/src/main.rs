//! The main job, to watch: two pods get addresses on a bridge, reach each other, the gateway and a machine outside
//! through masquerade, and are removed without a trace.
//!
//! Everything happens in namespaces that end with this program. It is the runtime and the plugins: called by a plugin's
//! name it acts as that plugin, as the `cni-plugins` executable does.

mod drawing;
mod steps;

use std::process::ExitCode;

#[expect(clippy::disallowed_methods, reason = "shows whether this program was called as a plugin")]
fn main() -> ExitCode {
    if std::env::var_os("CNI_COMMAND").is_some() {
        return cni_plugins::main(std::env::args()).into();
    }
    match steps::run(&mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quickstart: {error:#}");
            ExitCode::FAILURE
        }
    }
}
