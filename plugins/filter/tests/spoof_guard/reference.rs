//! Guards that the reference's bridge plugin makes, or would make.

use std::process::{Command, Stdio};

use cni_filter::{Mac, Names, gc_spoof_guards};

use super::{MAC, add, chains, check, delete_port, jumps, make_port, of};
use crate::node::{ETH0, OtherNamespace, has, in_netns, remove, sh};

/// The reference's bridge plugin with macspoofchk, which runs nft(8).
fn reference(command: &str, container: &str, netns: &str) {
    let conf =
        "{\"cniVersion\":\"1.0.0\",\"name\":\"office\",\"type\":\"bridge\",\"bridge\":\"br0\",\"macspoofchk\":true,
        \"ipam\":{\"type\":\"static\",\"addresses\":[{\"address\":\"10.1.0.5/24\"}]}}";
    let plugins = testns::find_reference().unwrap();
    let mut child = Command::new(plugins.join("bridge"))
        .envs([("CNI_COMMAND", command), ("CNI_CONTAINERID", container), ("CNI_NETNS", netns)])
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", plugins)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), conf.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn has_reference(test: &str) -> bool {
    testns::reference_or_skip(test).is_some() && has(test, "nft") && has(test, "ip")
}

/// The host's end of the pod's veth, and the pod's hardware address.
fn port_and_mac(pod: &OtherNamespace) -> (String, Mac) {
    let veth = sh("ip -br link show type veth | sed 's/@.*//'");
    let mac = sh(&format!("nsenter -t {} -n ip -br link show eth0 | awk '{{print $3}}'", pod.pid()));
    let bytes: Vec<u8> = mac.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    (veth.trim().to_owned(), bytes.try_into().unwrap())
}

/// A container ID as runtimes have it, and one that is as long as the reference can bear.
#[test]
fn nft_prints_the_same_as_after_the_reference() {
    for length in [2, 64, 233] {
        in_netns(move || {
            if !has_reference("nft_prints_the_same_as_after_the_reference") {
                return;
            }
            let (pod, container) = (OtherNamespace::new(), "c".repeat(length));
            let attachment = Names { container: &container, ..ETH0 };
            reference("ADD", &container, &pod.netns());
            let (port, mac) = port_and_mac(&pod);
            let listed = || sh("nft list ruleset; nft --debug=netlink list ruleset");
            let theirs = without_handles(&listed());
            assert_eq!(check(attachment, &port, mac), Ok(()));
            add(attachment, &port, mac);
            assert_eq!(without_handles(&listed()), theirs);
            sh("nft flush ruleset");
            add(attachment, &port, mac);
            assert_eq!(without_handles(&listed()), theirs);
            reference("DEL", &container, &pod.netns());
            assert_eq!((jumps(), chains()), (vec![], 0));
        });
    }
}

/// Without the lines that number rules and positions.
fn without_handles(listed: &str) -> String {
    let lines = listed.lines().filter(|line| !line.starts_with("bridge nat "));
    lines.map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn guards_of_the_reference_are_removed() {
    in_netns(|| {
        if !has_reference("guards_of_the_reference_are_removed") {
            return;
        }
        let pod = OtherNamespace::new();
        reference("ADD", "c1", &pod.netns());
        let (port, _) = port_and_mac(&pod);
        remove(ETH0);
        assert_eq!(jumps().len(), 1, "the container can still send");
        delete_port(&port);
        remove(Names { ifname: "net1", ..ETH0 });
        assert_eq!(jumps().len(), 1, "it is another interface's");
        remove(ETH0);
        assert_eq!((jumps(), chains()), (vec![], 0));
        remove(ETH0);
    });
}

/// What the reference makes for an attachment; it empties chains that are there.
fn load_the_references(id: &str, port: &str) {
    let (chain, comment) = (format!("bridge nat cni-br-iface-{id}"), format!("comment \"macspoofchk-{id}\""));
    sh(&format!(
        "nft -f - <<'END'
add table bridge nat
add chain bridge nat PREROUTING {{ type filter hook prerouting priority -300; }}
add chain {chain}
add chain {chain}-mac
flush chain {chain}
flush chain {chain}-mac
add rule bridge nat PREROUTING iifname {port} jump cni-br-iface-{id} {comment}
add rule {chain} jump cni-br-iface-{id}-mac {comment}
add rule {chain}-mac ether saddr 02:00:00:00:00:05 return {comment}
add rule {chain}-mac drop {comment}
END"
    ));
}

#[test]
fn a_guard_of_the_reference_with_an_ambiguous_name_is_found() {
    in_netns(|| {
        testns::needs!(has("a_guard_of_the_reference_with_an_ambiguous_name_is_found", "nft"));
        for attachment in [of("y", "eth0-mac"), of("y-eth0", "mac")] {
            make_port("veth1");
            load_the_references("y-eth0-mac", "veth1");
            assert_eq!(check(attachment, "veth1", MAC), Ok(()));
            remove(attachment);
            assert_eq!((jumps().len(), chains()), (1, 2), "the container can still send");
            delete_port("veth1");
            assert_eq!(gc_spoof_guards(&[attachment]), []);
            assert_eq!((jumps().len(), chains()), (1, 2), "it is valid");
            remove(attachment);
            assert_eq!((jumps(), chains()), (vec![], 0));
        }
    });
}

#[test]
fn a_chain_that_two_guards_of_the_reference_share_is_deleted_with_the_last() {
    for order in [["y-eth0", "y-eth0-mac"], ["y-eth0-mac", "y-eth0"]] {
        in_netns(move || {
            testns::needs!(has("a_chain_that_two_guards_of_the_reference_share_is_deleted_with_the_last", "nft"));
            let load = || order.iter().for_each(|id| load_the_references(id, &format!("veth{}", id.len())));
            load();
            remove(of("y", "eth0"));
            assert_eq!(jumps().len(), 1, "the other's stays");
            remove(of("y", "eth0-mac"));
            assert_eq!((jumps(), chains()), (vec![], 0));
            load();
            remove(of("y", "eth0-mac"));
            assert_eq!(jumps().len(), 1, "the other's stays");
            remove(of("y", "eth0"));
            assert_eq!(jumps(), []);
            load();
            assert_eq!(gc_spoof_guards(&[of("y", "eth0")]), []);
            assert_eq!(jumps().len(), 1, "one is valid");
            assert_eq!(gc_spoof_guards(&[]), []);
            assert_eq!(jumps(), []);
        });
    }
}
