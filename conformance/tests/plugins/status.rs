//! STATUS as runtimes ask it: every five seconds for ever, also on a node that is busy.

use crate::interface_plugins::{MACVLAN, PTP};
use crate::prelude::*;
use nix::libc;

fn status(node: &Node, config: &Value) -> Call {
    let call = Call::new(Verb::Status, config, Attachment::none());
    call.run(node).ok();
    call
}

fn masqueraded() -> Value {
    let own = json!({"ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true});
    with(bridge(json!({"cniVersion": "1.1.0"})), own)
}

/// A request for a link waits until no other process changes links; a lock file, until its holder has done.
#[track_caller]
fn waits_for_nothing(node: &Node, config: &Value) {
    let call = status(node, config);
    let traced = call.trace(node);
    traced.reply.ok();
    let is_route_socket = |call: &&testns::trace::Syscall| {
        let [family, _, protocol, ..] = call.arguments.map(|argument| i32::try_from(argument).unwrap_or(-1));
        call.name() == "socket" && (family, protocol) == (libc::AF_NETLINK, libc::NETLINK_ROUTE)
    };
    assert_eq!(traced.calls.iter().find(is_route_socket), None, "{config}");
    let names = ["flock", "setns", "unshare", "clone", "clone3", "fork", "vfork", "mkdir", "unlink", "rename"];
    let found: Vec<_> =
        traced.calls.iter().map(testns::trace::Syscall::name).filter(|name| names.contains(&&**name)).collect();
    assert!(found.is_empty(), "{config}: {found:?}");
    assert_eq!(traced.messages, [], "{config}: it tries nothing out");
}

#[test]
fn status_after_the_first_of_a_boot_takes_no_lock_and_makes_nothing() {
    {
        let node = node();
        // Without the bridge, and with it.
        waits_for_nothing(&node, &masqueraded());
        Attached::add(&node, &masqueraded(), &node.container());
        waits_for_nothing(&node, &masqueraded());
    }
    {
        let (node, _outside) = PTP.node(1);
        waits_for_nothing(&node, &PTP.config(0, json!({"ipMasqBackend": "nftables", "ipam": unshared().v4()})));
    }
    MACVLAN.run(|kind| {
        let (node, _outside) = kind.node(1);
        node.host().set_up("uplink");
        waits_for_nothing(&node, &kind.config(0, json!({})));
    });
}

/// The file system of another namespace shows that one's links.
#[test]
fn status_finds_the_bridge_without_the_namespaces_sysfs() {
    let node = node();
    let taken = node.container();
    node.host().add_veth("br0", taken.namespace(), "x");
    nix::mount::umount2("/sys", nix::mount::MntFlags::MNT_DETACH).ok();
    let config = bridge(json!({"cniVersion": "1.1.0"}));
    let failure = node.call(Verb::Status, &config, Attachment::none()).fails_with(50);
    assert!(failure.msg.contains("br0 already exists"), "{failure:?}");
}
