//! Three nodes on one layer-2 network: their pods' addresses are unique in the cluster, and every pod reaches every other one.
//!
//! Everything happens in namespaces that end with this program. It is the runtime of each node, and the plugins: called by a
//! plugin's name it acts as that plugin. `story.rs` has the steps, `machine.rs` what one node does.

mod machine;
mod story;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let called = std::env::args().next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
    match name.as_str() {
        "cluster" => cluster::main(),
        _ if is_plugin_call() => cni_plugins::main(std::env::args()).into(),
        _ => match story::run(&mut std::io::stdout().lock()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cluster-example: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

#[expect(clippy::disallowed_methods, reason = "shows whether this program was called as a plugin")]
fn is_plugin_call() -> bool {
    std::env::var_os("CNI_COMMAND").is_some()
}
