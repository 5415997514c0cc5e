//! The spoof guard, on the real kernel.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::node::{ETH0, in_netns, in_netns_with, remove, sh};
use cni_filter::{Filter, Mac, Names, gc_spoof_guards};
use netops::nft::{Change, Family, Nft, Rule, Table, Transaction};

const TABLE: Table = Table::new(Family::Bridge, "nat");
const MAC: Mac = [2, 0, 0, 0, 0, 5];

fn add(attachment: Names<'_>, host_veth: &str, mac: Mac) {
    Filter::open("").unwrap().add_spoof_guard(attachment, host_veth, mac).unwrap();
}

fn check(attachment: Names<'_>, host_veth: &str, mac: Mac) -> Result<(), String> {
    let checked = Filter::open("").unwrap().check_spoof_guard(attachment, host_veth, mac);
    checked.map_err(|error| error.to_string())
}

/// The rules where all guards begin.
fn jumps() -> Vec<Rule> {
    Nft::open("the host").unwrap().list_rules(&TABLE.chain("PREROUTING")).unwrap()
}

/// How many chains the table has beside the one where all guards begin.
fn chains() -> usize {
    Nft::open("the host").unwrap().list_chains(&TABLE).unwrap().len() - 1
}

fn make_port(name: &str) {
    sh(&format!("ip link add {name} type veth peer name {name}p"));
}

fn delete_port(name: &str) {
    sh(&format!("ip link delete {name}"));
}

/// The names say container and interface, and no network: a DEL for another network, whose ADD failed because the
/// interface was there, must not unguard the one that is there.
#[test]
fn a_guard_stays_as_long_as_its_port() {
    in_netns_with("ip", || {
        make_port("veth1");
        add(ETH0, "veth1", MAC);
        let lab = Names { network: "lab", ..ETH0 };
        remove(lab);
        remove(ETH0);
        assert_eq!(gc_spoof_guards(&[]), []);
        assert_eq!(check(ETH0, "veth1", MAC), Ok(()));
        delete_port("veth1");
        remove(lab);
        assert_eq!((jumps(), chains()), (vec![], 0));
    });
}

#[test]
fn gc_removes_guards_without_a_port_and_keeps_valid_ones() {
    in_netns_with("ip", || {
        let of = |container| Names { container, ..ETH0 };
        make_port("alive");
        add(of("c1"), "alive", MAC);
        add(of("c2"), "gone2", MAC);
        add(of("c3"), "gone3", MAC);
        sh("nft add rule bridge nat PREROUTING iifname gone4 drop");
        let others = jumps().len() - 3;
        assert_eq!(gc_spoof_guards(&[of("c3")]), []);
        assert_eq!((jumps().len(), chains()), (2 + others, 4));
        assert_eq!((check(of("c1"), "alive", MAC), check(of("c3"), "gone3", MAC)), (Ok(()), Ok(())));
        assert_eq!(gc_spoof_guards(&[]), []);
        assert_eq!((jumps().len(), chains()), (1 + others, 2));
    });
}

/// The listed guards are those that GC removes.
#[test]
fn guards_without_a_port_are_listed() {
    in_netns_with("ip", || {
        let listed = || {
            let found = cni_filter::AllRules::read("").unwrap().of("office");
            found.into_iter().map(|noted| (noted.container, noted.ifname, noted.object)).collect::<Vec<_>>()
        };
        assert_eq!(listed(), []);
        make_port("veth1");
        add(ETH0, "veth1", MAC);
        add(of("c-2", "net1"), "veth2", MAC);
        add(of("c3", "a-b"), "veth3", MAC); // its ID has digits: whose it is cannot be read off
        let owned = |text: &str| Some(text.to_owned());
        let idle = (owned("c-2"), owned("net1"), "spoof guard of veth2, which is gone".to_owned());
        assert_eq!(listed(), [idle]);
        assert_eq!(gc_spoof_guards(&[]), []);
        assert_eq!(listed(), []);
        delete_port("veth1");
        assert_eq!(listed().len(), 1);
    });
}

/// A container that came back under its ID: the new port is guarded, and the old one may not send at all.
#[test]
fn an_earlier_port_that_still_exists_stays_guarded() {
    in_netns_with("ip", || {
        make_port("old");
        add(ETH0, "gone", [2, 0, 0, 0, 0, 1]);
        add(ETH0, "old", [2, 0, 0, 0, 0, 2]);
        add(ETH0, "new", MAC);
        assert_eq!(jumps().len(), 2);
        assert_eq!((check(ETH0, "new", MAC), check(ETH0, "old", MAC)), (Ok(()), Ok(())));
        assert!(check(ETH0, "gone", MAC).is_err() && check(ETH0, "old", [2, 0, 0, 0, 0, 2]).is_err());
    });
}

#[test]
fn check_reports_what_is_missing() {
    in_netns(|| {
        let none = "cannot find spoof guard of veth1 in nft chain bridge nat PREROUTING: no rule of this attachment leads \
                    there";
        assert_eq!(check(ETH0, "veth1", MAC), Err(none.to_owned()));
        add(ETH0, "veth1", MAC);
        assert_eq!(check(ETH0, "veth1", MAC), Ok(()));
        assert!(check(ETH0, "veth2", MAC).is_err());
        assert!(check(Names { container: "c2", ..ETH0 }, "veth1", MAC).is_err());
        let other = "cannot use nft chain bridge nat cni-br-iface-c1-eth0-mac: it lets pass what comes from \
                     02:00:00:00:00:05, and the container's interface has 02:00:00:00:00:06, so all that it sends is \
                     dropped: ask for the address by bridge's capability mac, or by args.cni.mac, not by plugin tuning, \
                     which changes it later";
        assert_eq!(check(ETH0, "veth1", [2, 0, 0, 0, 0, 6]), Err(other.to_owned()));
        let mut nft = Nft::open("the host").unwrap();
        for chain in ["cni-br-iface-c1-eth0-mac", "cni-br-iface-c1-eth0", "PREROUTING"] {
            nft.commit(&Transaction::new(vec![Change::FlushChain(TABLE.chain(chain))])).unwrap();
            assert!(check(ETH0, "veth1", MAC).unwrap_err().contains(chain));
            add(ETH0, "veth1", MAC); // mends it
            assert_eq!(check(ETH0, "veth1", MAC), Ok(()));
        }
    });
}

/// Where ebtables or an administrator has made the base chain, its policy and rules stay.
#[test]
fn a_base_chain_that_is_there_is_left_as_it_is() {
    in_netns_with("nft", || {
        sh("nft 'add table bridge nat; add chain bridge nat PREROUTING {
            type filter hook prerouting priority -300; policy drop; }; add rule bridge nat PREROUTING counter accept'");
        add(ETH0, "veth1", MAC);
        remove(ETH0);
        assert_eq!(jumps().len(), 1);
        assert!(sh("nft list ruleset").contains("policy drop"));
    });
}

fn of(container: &'static str, ifname: &'static str) -> Names<'static> {
    Names { container, ifname, ..ETH0 }
}

/// Joined by `-`, as the reference's names are, one's chain would be another's second chain, or the same.
#[test]
fn attachments_with_the_same_joined_names_have_separate_guards() {
    let pairs = [
        (of("y", "eth0"), of("y", "eth0-mac")),
        (of("y", "eth0"), of("y-eth0", "mac")),
        (of("x-n", "eth0"), of("x", "n-eth0")),
        (of("x", "a-b-c"), of("x-a", "b-c")),
    ];
    for (one, two) in pairs.into_iter().flat_map(|(one, two)| [(one, two), (two, one)]) {
        in_netns_with("ip", move || {
            make_port("veth1");
            make_port("veth2");
            add(one, "veth1", MAC);
            add(two, "veth2", [2, 0, 0, 0, 0, 6]);
            assert_eq!((check(one, "veth1", MAC), check(two, "veth2", [2, 0, 0, 0, 0, 6])), (Ok(()), Ok(())));
            delete_port("veth1");
            remove(one);
            assert_eq!((jumps().len(), chains()), (1, 2));
            assert_eq!(check(two, "veth2", [2, 0, 0, 0, 0, 6]), Ok(()));
            delete_port("veth2");
            assert_eq!(gc_spoof_guards(&[two]), []);
            assert_eq!(check(two, "veth2", [2, 0, 0, 0, 0, 6]), Ok(()));
            assert_eq!(gc_spoof_guards(&[]), []);
            assert_eq!((jumps(), chains()), (vec![], 0));
        });
    }
}

#[test]
fn a_chain_that_receives_no_frames_is_refused() {
    let made = [
        ("chain PREROUTING { }", "it is a regular chain"),
        ("chain PREROUTING { type filter hook forward priority 0; }", "it is a filter chain on hook forward"),
    ];
    for (chain, what) in made {
        in_netns_with("nft", move || {
            add(ETH0, "veth1", MAC);
            let guard = sh("nft list ruleset");
            let (start, end) = (guard.find("type filter").unwrap(), guard.find("iifname").unwrap());
            let inner = chain.trim_start_matches("chain PREROUTING {").trim_end_matches('}');
            let moved = format!("{}{inner}\n{}", &guard[..start], &guard[end..]);
            sh(&format!("nft flush ruleset; nft -f - <<'END'\n{moved}\nEND"));
            let error = check(ETH0, "veth1", MAC).unwrap_err();
            assert!(error.contains("nft chain bridge nat PREROUTING") && error.contains(what), "{error}");
            let before = sh("nft list ruleset");
            for attachment in [ETH0, of("c2", "eth0")] {
                let refused = Filter::open("").unwrap().add_spoof_guard(attachment, "veth2", MAC).unwrap_err();
                assert!(refused.to_string().contains("delete or rename it"), "{refused}");
            }
            assert!(Filter::open("").unwrap().probe_spoof_guard().is_err());
            assert_eq!(sh("nft list ruleset"), before);
        });
    }
}

#[test]
fn a_dormant_table_is_woken() {
    for chain in ["", "chain PREROUTING { type filter hook prerouting priority -300; }"] {
        in_netns_with("nft", move || {
            add(ETH0, "veth1", MAC);
            sh("nft add table bridge nat '{ flags dormant; }'");
            let error = check(ETH0, "veth1", MAC).unwrap_err();
            assert!(error.contains("nft table bridge nat") && error.contains("dormant"), "{error}");
            sh(&format!("nft flush ruleset; nft 'table bridge nat {{ flags dormant; {chain}\n}}'"));
            add(ETH0, "veth1", MAC);
            assert!(!sh("nft list ruleset").contains("dormant"));
            assert_eq!(check(ETH0, "veth1", MAC), Ok(()));
        });
    }
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
