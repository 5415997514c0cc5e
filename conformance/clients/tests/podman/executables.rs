//! The plugins in podman's folder: ours or the reference's.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testns::{Output, run};

use crate::folders;

/// The folder that `containers.conf` names.
pub(crate) const BIN_DIR: &str = "/run/testns/opt-cni-bin";

/// The maker of the plugins that are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    Ours,
    Reference,
}

/// Puts all of the reference's plugins there.
pub(crate) fn install_reference() {
    for entry in fs::read_dir(testns::find_reference().unwrap()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), Path::new(BIN_DIR).join(entry.file_name())).unwrap();
    }
}

/// Puts one maker's plugins in the place of the other's, as an operator does: `cnitool install`, and back again from
/// the folder in which that keeps what it replaced.
pub(crate) fn install(maker: Maker) {
    match maker {
        Maker::Ours => {
            let plugins = testns::plugins().to_str().unwrap();
            cnitool(&["install", "--replace-foreign", "--bin-dir", BIN_DIR, "--from", plugins]);
        }
        Maker::Reference => {
            for entry in fs::read_dir(Path::new(BIN_DIR).join(".replaced")).unwrap() {
                let entry = entry.unwrap();
                fs::rename(entry.path(), Path::new(BIN_DIR).join(entry.file_name())).unwrap();
            }
        }
    }
    assert_all_of(maker);
}

/// Under each name that the reference has, podman finds the maker's executable.
fn assert_all_of(maker: Maker) {
    let ours = fs::read(testns::plugins()).unwrap();
    for entry in fs::read_dir(testns::find_reference().unwrap()).unwrap() {
        let name = entry.unwrap().file_name();
        let is_ours = fs::read(Path::new(BIN_DIR).join(&name)).unwrap() == ours;
        assert_eq!(is_ours, maker == Maker::Ours, "{}", name.display());
    }
}

/// Runs `cnitool`, which succeeds.
pub(crate) fn cnitool(arguments: &[&str]) -> Output {
    let mut command = Command::new(testns::cnitool());
    command.args(arguments).env_clear().env("PATH", folders::PATH).env("CNI_PATH", BIN_DIR);
    let output = run(command, b"", Duration::from_secs(60));
    assert!(output.status.success(), "cnitool {arguments:?}: {}{}", output.stdout, output.stderr);
    output
}
