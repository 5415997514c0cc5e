//! Machines that forbid something.

use crate::run_kit::{Bin, HONEST, Said, kit, plugin, say, sum};
use std::path::Path;
use std::process::Command;

/// Runs the kit on a folder after a line of shell, in user and mount namespaces of its own.
fn after(line: &str, bin: &Bin, arguments: &[&str]) -> Said {
    let kit = plugin(bin, arguments);
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", &format!("{line} && exec \"$0\" \"$@\"")]);
    command.arg(kit.get_program()).args(kit.get_args());
    say(command)
}

/// Returns whether this machine lets a user namespace have its own `/proc`.
pub(crate) fn may_mount_proc() -> bool {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "--pid", "--fork", "mount", "-t", "proc", "proc", "/proc"]);
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn without_user_namespaces_nothing_is_tried_and_it_is_said_why() {
    let bin = Bin::with("loopback", HONEST);
    let said = after("echo 0 >/proc/sys/user/max_user_namespaces", &bin, &["--only", "loopback"]);
    said.has(3, &["nothing can be tested here: cni-conformance: unshare: ENOSPC", "user.max_user_namespaces"]);
}

#[test]
fn with_a_hidden_proc_processes_are_shared_and_it_is_said_once() {
    let bin = Bin::with("loopback", &HONEST.replace("ADD)", "ADD) sleep 0 </dev/null >/dev/null 2>&1 &"));
    // Wherever it is seen: one more, such as that of a chroot, would be enough for the kernel to allow another.
    let said = after(
        "for proc in $(awk '$3 == \"proc\" { print $2 }' /proc/self/mounts); do mount -t tmpfs none $proc/fs || exit; done",
        &bin,
        &["--only", "loopback", "--rule", "del.leaves-nothing", "--rule", "version.lists-versions"],
    );
    said.has(0, &["this machine hides parts of its /proc", &sum(2, 0, 0, 0)]);
    assert_eq!(said.stdout.matches("hides parts").count(), 1, "{}", said.stdout);
}

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

#[test]
fn the_reference_gets_addresses_from_the_kits_server() {
    let name = "the_reference_gets_addresses_from_the_kits_server";
    let Some(reference) = testns::reference_or_skip(name) else { return };
    let reference = reference.to_str().unwrap();
    let rules = ["ipam.gives-an-address", "ipam.no-address-twice"].map(|rule| ["--rule", rule]).concat();
    let said = say(kit(&[&["plugin", "--bin-dir", reference, "--only", "dhcp"], rules.as_slice()].concat()));
    said.has(0, &[&sum(7, 0, 0, 0)]);
}
