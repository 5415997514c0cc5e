//! Plugins that a runtime runs in its own way, and operations without an event loop.

use crate::test_folder::{Folder, eth0, network, own, wait};
use libcni::cni_spec::Code;
use libcni::{Error, Execute, blocking};
use std::fs;
use std::io;
use std::process::{Child, Command};

/// The kernel ends these plugins first where memory is short: as with a cgroup, the process is there before it is told.
#[derive(Debug)]
struct Expendable;

impl Execute for Expendable {
    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let plugin = command.spawn()?;
        fs::write(format!("/proc/{}/oom_score_adj", plugin.id()), "500")?;
        Ok(plugin)
    }
}

#[test]
fn a_plugin_begins_after_its_process_was_prepared() {
    let folder = Folder::with(&[(
        "a",
        r#"cat > /dev/null; cat /proc/self/oom_score_adj > "$dir/score"; echo '{"cniVersion":"1.0.0"}'"#,
    )]);
    let runtime = folder.builder().execute(Expendable).build();
    blocking::wait(runtime.add(&network("1.0.0", &["a"]), &own())).unwrap();
    assert_eq!(folder.read("score"), "500\n");
}

#[test]
fn an_operation_that_would_stop_an_event_loop_is_refused() {
    let folder = Folder::new();
    let error = wait(async { blocking::wait(folder.runtime().del(&network("1.0.0", &["a"]), &eth0())) }).unwrap_err();
    assert!(matches!(error, Error::NoEventLoop(_)) && error.code() == Some(Code::IO), "{error}");
}
