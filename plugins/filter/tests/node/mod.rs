//! A network namespace for one test, and what other programs say about it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cni_filter::{Names, RemovalHints, remove_all};
use ipnetwork::IpNetwork;
use nix::sched::{CloneFlags, unshare};

pub(crate) const ETH0: Names<'static> = Names { network: "office", container: "c1", ifname: "eth0" };

/// Runs a test on a thread that has its own network namespace and `/run`; so have its threads and children.
#[expect(clippy::disallowed_methods, reason = "namespaces of the test's own, on a thread that ends there")]
pub(crate) fn in_netns(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
        nix::mount::mount(Some("none"), "/run", Some("tmpfs"), nix::mount::MsFlags::empty(), None::<&str>).unwrap();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// The same for a test that needs a program of the machine.
pub(crate) fn in_netns_with(program: &str, test: impl FnOnce() + Send + 'static) {
    if has(std::thread::current().name().unwrap_or(program), program) {
        in_netns(test);
    }
}

/// Whether a program is here; says so once if not.
pub(crate) fn has(test: &str, program: &str) -> bool {
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", ""];
    let is_here = folders.iter().any(|folder| Path::new(&format!("{folder}/{program}")).exists());
    if !is_here {
        testns::skip(test, &format!("no {program} here"));
    }
    is_here
}

pub(crate) fn networks(texts: &[&str]) -> Vec<IpNetwork> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn sh(commands: &str) -> String {
    let output = Command::new("sh").args(["-ec", commands]).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{commands}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Removes everything of an attachment that is known only by name.
pub(crate) fn remove(attachment: Names<'_>) {
    remove_known(attachment, RemovalHints::default());
}

pub(crate) fn remove_known(attachment: Names<'_>, known: RemovalHints<'_>) {
    assert_eq!(remove_all(attachment, known), []);
}

/// Another network namespace, as long as it is kept.
pub(crate) struct OtherNamespace(Child);

impl OtherNamespace {
    pub(crate) fn new() -> Self {
        let mut child = child_with_output(Command::new("unshare").args(["--net", "sh", "-c", "echo; exec sleep 1000"]));
        // The line says that the namespace is there.
        let mut line = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        Self(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

fn child_with_output(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).spawn().unwrap()
}

impl Drop for OtherNamespace {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
