//! Guards that the reference's bridge plugin makes, or would make.

use cni_filter::gc_spoof_guards;

use super::{MAC, chains, check, delete_port, jumps, make_port, of};
use crate::node::{in_netns_with, remove, sh};

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
    in_netns_with("nft", || {
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
        in_netns_with("nft", move || {
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
