//! The reference's plugin and daemon beside ours.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use testns::{Background, Call, Node, Subject, Verb};

use crate::lan::{Lan, bridge, has};

fn is_here() -> bool {
    testns::reference_or_skip("reference").is_some()
}

fn reference() -> &'static Path {
    testns::find_reference().unwrap()
}

fn reference_daemon(node: &Node, flags: &[&str]) -> Background {
    let mut command = Command::new(reference().join("dhcp"));
    command.arg("daemon").args(flags);
    std::fs::create_dir_all("/run/cni").unwrap();
    let daemon = Background::with_stderr(command);
    let socket = flags.last().map_or("/run/cni/dhcp.sock", |socket| *socket);
    node.host().wait_for("the reference's daemon", |_| std::os::unix::net::UnixStream::connect(socket).is_ok());
    daemon
}

#[test]
fn plugin_names_the_references_daemon() {
    testns::needs!(is_here());
    let lan = Lan::new();
    let _daemon = reference_daemon(&lan.node, &[]);
    let error = lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).fails_with(108);
    assert!(error.msg.ends_with("it is the reference plugins' daemon"), "{error:?}");
}

/// An upgrade that is half done: DEL neither fails for ever nor loses a lease of ours that is still recorded.
#[test]
fn del_and_gc_succeed_while_the_references_daemon_is_on_the_socket() {
    testns::needs!(is_here(), has("dnsmasq"));
    let lan = Lan::new();
    let mut server = lan.dnsmasq(&[]);
    let pod = lan.node.container();
    let daemon = lan.daemon(&[]);
    lan.node.call(Verb::Add, bridge(json!({})), &pod).ok();
    drop(daemon);
    // The reference's does not start over a socket that is there.
    std::fs::remove_file("/run/cni/dhcp.sock").ok();
    let reference = reference_daemon(&lan.node, &[]);
    lan.node.call(Verb::Del, bridge(json!({})), &pod).ok();
    let mut config = bridge(json!({}));
    config["cniVersion"] = "1.1.0".into();
    config["cni.dev/valid-attachments"] = json!([]);
    Call::new(Verb::Gc, &config, &pod).plugin("dhcp").run(&lan.node).ok();
    drop(reference);
    assert_eq!(lan.leases()[0]["isReleased"], true);
    // The link is gone; the node has a way to the server itself.
    lan.node.host().add_address("br0", "10.8.0.40/24");
    let _daemon = lan.daemon(&[]);
    server.wait_for("DHCPRELEASE");
}

#[test]
fn the_references_plugin_gets_an_end_from_our_daemon() {
    testns::needs!(is_here());
    let lan = Lan::new();
    let _daemon = lan.daemon(&[]);
    lan.node.install_one(&Subject::Folder(reference().into()), "dhcp");
    let error = lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).fails();
    assert!(error.msg.contains("another suite's dhcp daemon"), "{error:?}");
}

/// With one server and the same config, the result is the same but for DNS, which the reference loses.
#[test]
fn result_is_the_references() {
    testns::needs!(is_here(), has("dnsmasq"));
    let options = [
        "--dhcp-option=option:dns-server,10.8.0.3",
        "--dhcp-option=option:static-route,172.16.0.0,10.8.0.7",
        "--dhcp-option=121,10.20.0.0/16,10.8.0.9,0.0.0.0/0,10.8.0.1",
    ];
    let ipams = [
        json!({}),
        json!({"request": [{"option": "33"}]}),
        json!({"request": [{"option": "121"}]}),
        json!({"provide": [{"option": "dhcp-client-identifier", "value": "me"}]}),
    ];
    for ipam in ipams {
        let mut results = Vec::new();
        for is_ours in [true, false] {
            let lan = Lan::new();
            let mut server = lan.dnsmasq(&options);
            let _daemon = if is_ours {
                lan.daemon(&[])
            } else {
                lan.node.install_one(&Subject::Folder(reference().into()), "dhcp");
                reference_daemon(&lan.node, &[])
            };
            let mut config = bridge(ipam.clone());
            config["name"] = "net".into();
            config["ipam"]["routes"] = json!(null);
            let mut result = lan.node.call(Verb::Add, &config, &lan.node.container_named("same")).ok();
            server.wait_for("DHCPACK");
            let id = server.wait_for("sent size:");
            assert!(!id.is_empty());
            for key in ["dns", "interfaces"] {
                result.as_object_mut().unwrap().remove(key);
            }
            results.push(result);
        }
        assert_eq!(results[0], results[1], "{ipam}");
    }
}
