//! Write protection: the machine is safe from a plugin that writes.

use crate::run_kit::{Bin, HONEST, plugin, say, sum};
use std::path::Path;

/// A plugin that writes a file with each ADD, and fails if it cannot.
fn writing(file: &Path) -> Bin {
    let write = format!(
        "ADD) echo x > {} || {{ echo '{{\"cniVersion\":\"1.0.0\",\"code\":100,\"msg\":\"cannot write\"}}'; exit 1; }};",
        file.display()
    );
    Bin::with("loopback", &HONEST.replace("ADD)", &write))
}

const ADD: [&str; 4] = ["--only", "loopback", "--rule", "add.prints-a-result"];

#[test]
fn a_plugin_that_writes_to_the_machine_fails_and_is_told_why() {
    let file = Path::new("/usr/local/cni-conformance-test");
    let bin = writing(file);
    say(plugin(&bin, &ADD)).has(1, &["it was refused a write", "--writable"]);
    assert!(!file.exists());
    let said = say(plugin(&bin, &[&ADD[..], &["--writable", "/usr/local"]].concat()));
    said.has(0, &[&sum(1, 0, 0, 0)]);
    assert!(!file.exists(), "the folder was the machine's own");
}

#[test]
fn temporary_files_are_the_trials_own() {
    for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
        let file = Path::new(folder).join(format!("cni-conformance-test-{}", std::process::id()));
        say(plugin(&writing(&file), &ADD)).has(0, &[&sum(1, 0, 0, 0)]);
        assert!(!file.exists(), "{folder} was the machine's own");
    }
}
