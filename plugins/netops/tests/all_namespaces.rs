//! Addresses in namespaces that have no name on the node itself.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use netops::all_namespaces::AllNamespaces;
use testns::Feature;

/// A namespace without a process, which only another mount namespace has mounted.
const HOLDER: &str = "mount -t tmpfs tmpfs /mnt; : > /mnt/pod; unshare --net=/mnt/pod sh -ec \
    'ip tuntap add eth0 mode tap; ip address add 10.7.0.9/24 dev eth0'; echo ready; read -r _";

#[test]
fn a_namespace_that_another_mount_namespace_holds_is_searched() {
    if !Feature::Tun.is_here() {
        testns::note("SKIPPED: there is no tun");
        return;
    }
    let address = "10.7.0.9".parse().unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-ec", HOLDER]);
    let mut holder = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    assert_eq!(AllNamespaces::read().find(&[address]), Some(true));
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert_eq!(AllNamespaces::read().find(&[address]), Some(false));
}
