//! The spoof guard, on the real kernel.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod node;

use std::net::UdpSocket;
use std::time::Duration;

use filter::{Attachment, Filter, Known, Mac, gc};
use netops::nft::{Family, Nft, Table};
use node::{ETH0, Pod, has, in_netns, in_pod, remove, remove_known, sh};

const TABLE: Table = Table::new(Family::Bridge, "cni_spoof_guard");
const MAC: Mac = [2, 0, 0, 0, 0, 5];

fn add(attachment: Attachment<'_>, host_veth: &str, mac: Mac) {
    Filter::open().unwrap().add_spoof_guard(attachment, host_veth, mac).unwrap();
}

fn check(attachment: Attachment<'_>, host_veth: &str, mac: Mac) -> Result<(), String> {
    let checked = Filter::open().unwrap().check_spoof_guard(attachment, host_veth, mac);
    checked.map_err(|error| error.to_string())
}

fn has_table() -> bool {
    Nft::open("the host").unwrap().find_table(&TABLE).unwrap().is_some()
}

#[test]
fn the_ruleset_is_as_documented() {
    in_netns(|| {
        if !has("the_ruleset_is_as_documented", "nft") {
            return;
        }
        add(ETH0, "veth1", MAC);
        add(ETH0, "veth1", MAC); // once more changes nothing
        let whose = "f358a8caf95e1889-f4d01f2ef4b92245, mac: 02:00:00:00:00:05, net: office, if: eth0, id: c1";
        let expected = format!(
            "table bridge cni_spoof_guard {{
	map guarded {{
		type ifname : verdict
		elements = {{ \"veth1\" comment \"{whose}\" : goto guarded_port }}
	}}

	set allowed {{
		type ifname . ether_addr
		elements = {{ \"veth1\" . 02:00:00:00:00:05 comment \"{whose}\" }}
	}}

	chain guarded_port {{
		iifname . ether saddr @allowed return
		drop
	}}

	chain prerouting {{
		type filter hook prerouting priority dstnat; policy accept;
		iifname vmap @guarded
	}}
}}
"
        );
        assert_eq!(sh("nft list ruleset"), expected);
    });
}

#[test]
fn a_port_has_one_address_and_the_last_takes_the_table_along() {
    in_netns(|| {
        let c2 = Attachment { container: "c2", ..ETH0 };
        add(ETH0, "veth1", MAC);
        add(c2, "veth2", MAC);
        let new = [2, 0, 0, 0, 0, 6];
        add(ETH0, "veth1", new);
        assert_eq!(check(ETH0, "veth1", new), Ok(()));
        let missing = "cannot find nft element bridge cni_spoof_guard allowed { \"veth1\" . 02:00:00:00:00:05 }: \
                       it was not found, or belongs to another attachment";
        assert_eq!(check(ETH0, "veth1", MAC), Err(missing.to_owned()));
        remove_known(ETH0, Known { host_veth: Some("veth1"), ..Known::default() });
        assert_eq!(check(c2, "veth2", MAC), Ok(()));
        remove_known(ETH0, Known { host_veth: Some("veth2"), ..Known::default() }); // somebody else's
        assert_eq!(check(c2, "veth2", MAC), Ok(()));
        remove(c2);
        assert!(!has_table());
    });
}

#[test]
fn gc_keeps_the_valid_and_other_networks() {
    in_netns(|| {
        let c2 = Attachment { container: "c2", ..ETH0 };
        let other = Attachment { network: "lab", ..c2 };
        add(ETH0, "veth1", MAC);
        add(c2, "veth2", MAC);
        add(other, "veth3", MAC);
        assert_eq!(gc("office", &[ETH0], ""), []);
        assert_eq!(check(ETH0, "veth1", MAC), Ok(()));
        assert!(check(c2, "veth2", MAC).is_err());
        assert_eq!(check(other, "veth3", MAC), Ok(()));
    });
}

/// What a pod sends from another address does not pass the bridge.
#[test]
fn a_forged_sender_does_not_pass() {
    in_netns(|| {
        if !has("a_forged_sender_does_not_pass", "ip") {
            return;
        }
        let pod = Pod::new();
        sh(&format!(
            "ip link add br0 address 02:00:00:00:00:01 type bridge; ip addr add 10.1.0.1/24 dev br0; ip link set br0 up
             ip link add veth1 type veth peer name eth0 address 02:00:00:00:00:05 netns {pod}
             ip link set veth1 master br0 up
             nsenter -t {pod} -n sh -ec 'ip addr add 10.1.0.5/24 dev eth0; ip link set eth0 up
                 ip neigh replace 10.1.0.1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent'",
            pod = pod.pid(),
        ));
        let receiver = UdpSocket::bind("10.1.0.1:7").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let send = |mac: &str, text: &'static str| {
            sh(&format!("nsenter -t {} -n ip link set eth0 address {mac}", pod.pid()));
            in_pod(&pod, move || {
                UdpSocket::bind("10.1.0.5:0").unwrap().send_to(text.as_bytes(), "10.1.0.1:7").unwrap()
            });
        };
        let received = || {
            let mut text = [0; 16];
            let length = receiver.recv(&mut text).unwrap();
            String::from_utf8_lossy(&text[..length]).into_owned()
        };
        let (true_mac, forged) = ("02:00:00:00:00:05", "02:00:00:00:00:66");
        send(forged, "unguarded");
        assert_eq!(received(), "unguarded");
        add(ETH0, "veth1", MAC);
        send(forged, "forged");
        send(true_mac, "true"); // arrives behind the other, if that arrives
        assert_eq!(received(), "true");
        remove(ETH0);
        send(forged, "unguarded");
        assert_eq!(received(), "unguarded");
    });
}
