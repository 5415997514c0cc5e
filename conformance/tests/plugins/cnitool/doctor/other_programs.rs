//! `cnitool doctor` and what other programs of a node do, or do not: daemons that have not run, and containers beside
//! each other.

use super::cases::ERROR;
use super::lost_packets::{Sick, sh};
use crate::cnitool::netns;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(10);

fn plugin_of_others(sick: &Sick, name: &str) {
    testns::write_executable(
        sick.tour.bin_dir.join(name),
        "#!/bin/sh\necho '{\"supportedVersions\": [\"1.0.0\", \"1.1.0\"]}'\n",
    )
    .unwrap();
}

/// The finding of a kind, with the exit code of doctor.
fn find(sick: &Sick, kind: &str) -> (i32, Option<Value>) {
    let (exit, findings) = sick.doctor();
    (exit, findings.into_iter().find(|finding| finding["kind"] == kind))
}

/// After `kubeadm reset` the bridge has the subnet of the former cluster, and flannel's file another one.
#[test]
fn what_flannel_needs_is_found_before_a_container_meets_it() {
    let sick = Sick::new();
    plugin_of_others(&sick, "flannel");
    fs::remove_file("/etc/cni/net.d/10-office.conflist").unwrap();
    sick.network(
        "10-flannel",
        json!({"name": "cbr0", "plugins": [{"type": "flannel", "subnetFile": "/run/subnet.env",
        "delegate": {"hairpinMode": true, "isDefaultGateway": true}}]}),
    );
    let (exit, finding) = find(&sick, "not-ready");
    let finding = finding.unwrap();
    assert_eq!(exit, ERROR);
    assert_eq!(finding["what"], "/run/subnet.env, which plugin flannel needs, is missing");
    assert!(finding["remedy"].as_str().unwrap().contains("kube-flannel-ds"), "{finding}");
    let subnet = &sick.tour.subnet;
    fs::write("/run/subnet.env", format!("FLANNEL_SUBNET={subnet}.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"))
        .unwrap();
    assert_eq!(find(&sick, "not-ready").1, None);
    sh("ip link add cni0 type bridge; ip address add 10.244.2.1/24 dev cni0; ip link set cni0 up");
    let (exit, finding) = find(&sick, "gateway-address");
    let finding = finding.unwrap();
    assert_eq!(exit, ERROR);
    assert!(finding["what"].as_str().unwrap().starts_with("bridge cni0 has address 10.244.2.1/24"), "{finding}");
    assert!(sick.tour.shell(finding["remedy"].as_str().unwrap()).status.success());
    assert_eq!(find(&sick, "gateway-address").1, None);
}

#[test]
fn files_that_plugins_of_others_need_are_looked_for() {
    let sick = Sick::new();
    plugin_of_others(&sick, "calico");
    sick.network(
        "20-calico",
        json!({"name": "calico", "plugins": [{"type": "calico", "nodename_file": "/run/nodename",
        "kubernetes": {"kubeconfig": "/run/calico-kubeconfig"}}]}),
    );
    let (exit, findings) = sick.doctor();
    let missing: Vec<&Value> =
        findings.iter().filter(|finding| finding["kind"] == "not-ready").map(|finding| &finding["what"]).collect();
    assert_eq!(exit, ERROR);
    assert_eq!(
        missing,
        [
            "/run/nodename, which plugin calico needs, is missing",
            "/run/calico-kubeconfig, which plugin calico needs, is missing"
        ]
    );
    sh("touch /run/nodename /run/calico-kubeconfig");
    assert_eq!(find(&sick, "not-ready").1, None);
}

#[test]
fn containers_with_one_ethernet_address_are_found() {
    let sick = Sick::new();
    sick.network(
        "20-fixed",
        json!({"name": "fixed", "plugins": [{"type": "bridge", "bridge": "br5", "isGateway": true,
        "ipam": {"type": "host-local", "subnet": "10.208.5.0/27"}},
        {"type": "tuning", "mac": "02:00:00:00:00:05"}]}),
    );
    let _web = sick.add("fixed", "web", None);
    assert_eq!(find(&sick, "duplicate-address").1, None);
    let _other = sick.add("fixed", "other", None);
    let text = "several living containers on bridge br5 have Ethernet address 02:00:00:00:00:05";
    let (exit, finding) = find(&sick, "duplicate-address");
    assert_eq!((exit, finding.unwrap()["what"].clone()), (ERROR, json!(text)));
}

/// A process in a container gives its interface the Ethernet address of another one; the remedy takes it back.
#[test]
fn an_ethernet_address_that_a_container_took_after_add_is_found() {
    let sick = Sick::new();
    let web = sick.add("office", "web", None);
    let other = sick.add("office", "other", None);
    assert_eq!(find(&sick, "duplicate-address").1, None);
    let [web, other] = [&web, &other].map(netns);
    sh(&format!(
        "mac=$(nsenter --net={web} ip -o link show eth0 | sed 's/.*ether //; s/ .*//')
        nsenter --net={other} ip link set eth0 address $mac"
    ));
    sick.expect(
        "other has the address of web",
        &[("duplicate-address", ERROR, "other/eth0: web/eth0 on bridge cni0 has Ethernet address", true)],
    );
}

/// docker's rule for a port comes before those of `portmap`.
#[test]
fn a_port_that_another_program_forwards_first_is_found() {
    let sick = Sick::new();
    let _pod = sick.add("office", "web", Some(8080));
    sh("iptables -w -t nat -N DOCKER; iptables -w -t nat -I PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
        iptables -w -t nat -A DOCKER ! -i docker0 -p tcp -m tcp --dport 8081 -j DNAT --to-destination 172.17.0.2:80");
    assert_eq!(sick.doctor(), (0, Vec::new()));
    sh("iptables -w -t nat -A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.3:80");
    let text = "-j DNAT --to-destination 172.17.0.3:80 comes before the rule that forwards port 8080/tcp";
    sick.expect("docker has the port", &[("port-twice", ERROR, text, false)]);
}

/// Networks with one subnet give one address to two containers, and a rule names the container that it was made for.
#[test]
fn a_port_belongs_to_the_container_that_asked_for_it_and_not_to_its_address() {
    for backend in ["iptables", "nftables"] {
        let sick = Sick::new();
        for (file, name, bridge) in [("10-office", "office", "cni0"), ("20-two", "two", "cni1")] {
            let bridge =
                json!({"type": "bridge", "bridge": bridge, "isDefaultGateway": true, "ipam": sick.tour.host_local()});
            let portmap = json!({"type": "portmap", "backend": backend, "capabilities": {"portMappings": true}});
            sick.network(file, json!({"name": name, "plugins": [bridge, portmap]}));
        }
        let _web = sick.add("office", "web", Some(8080));
        let _other = sick.add("two", "other", None);
        let findings = sick.doctor().1;
        assert!(findings.iter().any(|finding| finding["kind"] == "duplicate-address"), "{backend}: {findings:#?}");
        let of_ports = findings.iter().find(|finding| finding["kind"].as_str().unwrap().starts_with("port-"));
        assert_eq!(of_ports, None, "{backend}");
        let shown = sick.tour.cnitool(&["explain", "8080", "--json"]);
        let answers: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!((answers.as_array().unwrap().len(), &answers[0]["network"]), (1, &json!("office")), "{shown}");
    }
}

/// An editor of another system begins a file with a byte order mark, and the network of its containers is known all the same.
#[test]
fn a_byte_order_mark_is_named_by_all_that_read_the_file() {
    let sick = Sick::new();
    let _pod = sick.add("office", "web", None);
    let path = "/etc/cni/net.d/10-office.conflist";
    let network = fs::read(path).unwrap();
    fs::write(path, [b"\xef\xbb\xbf", network.as_slice()].concat()).unwrap();
    let evidence = &find(&sick, "config").1.unwrap()["evidence"];
    assert_eq!(evidence, &json!(["line 1, column 1: the file begins with a byte order mark"]));
    let output = sick.tour.call(&["explain", "web", "--json"]);
    let (said, answers) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(said.contains("it begins with a byte order mark. Save it as UTF-8 without one."), "{said}");
    assert!(
        answers.contains("its file is gone, or is /etc/cni/net.d/10-office.conflist, which cannot be read"),
        "{answers}"
    );
}

/// A macvlan goes with its master; with a renamed one it stays, and only the next ADD looks for the old name.
#[test]
fn what_to_do_about_a_master_fits_what_became_of_it() {
    let sick = Sick::new();
    sh("ip link add ens5 type veth peer ens5-end; ip link set ens5-end up; ip link set ens5 up");
    sick.network(
        "20-lan",
        json!({"name": "lan", "plugins": [{"type": "macvlan", "master": "ens5",
        "ipam": {"type": "host-local", "subnet": "10.250.0.0/24"}}]}),
    );
    let _pod = sick.add("lan", "web", None);
    sh("ip link set ens5 down; ip link set ens5 name ens6; ip link set ens6 up");
    let finding = find(&sick, "link-gone").1.unwrap();
    assert!(finding["consequence"].as_str().unwrap().starts_with("The next ADD does not find it: "), "{finding}");
    assert!(finding["remedy"].as_str().unwrap().starts_with("Set key master to ens6, or "), "{finding}");
    sh("ip link delete ens6");
    let bring = "Bring link ens5 back, or set key master to another one; then start the container anew.";
    for kind in ["link-gone", "container-side"] {
        assert_eq!(find(&sick, kind).1.unwrap()["remedy"], bring, "{kind}");
    }
}

/// Without cache and reservations, links and rules of living containers say who has which address.
#[test]
fn addresses_that_the_node_forgot_are_found_before_and_after_another_container_gets_them() {
    let sick = Sick::new();
    let _web = sick.add("office", "web", Some(8080));
    sh("rm -r /var/lib/cni/*");
    let address = sick.tour.address(2);
    let (exit, finding) = find(&sick, "unreserved");
    let finding = finding.unwrap();
    assert_eq!((exit, &finding["what"]), (ERROR, &json!("no reservation holds what web/eth0 has")));
    assert_eq!(finding["evidence"], json!([format!("{address}: no reservation")]));
    let explained = |word: &str| sick.tour.cnitool(&["explain", word]);
    let shown = explained(&address);
    assert!(shown.starts_with(&format!("{address} is an address of web/eth0 in network office")), "{shown}");
    assert!(shown.contains("port 8080/tcp of the node is forwarded") && !shown.contains("has no gateway"), "{shown}");
    let _new = sick.add("office", "new", None);
    let text = format!("several living containers have address {address}");
    assert_eq!(find(&sick, "duplicate-address").1.unwrap()["what"], text);
    let evidence = &find(&sick, "unreserved").1.unwrap()["evidence"];
    assert_eq!(evidence, &json!([format!("{address}: reserved for new")]));
}

/// IPv6 that is turned off takes the gateway's address with it: what turns it on again comes first.
#[test]
fn the_remedies_of_ipv6_that_was_turned_off_work_in_their_order() {
    let sick = Sick::new();
    sick.office(&json!([{"type": "bridge", "isDefaultGateway": true, "ipam": sick.both_families()}]));
    let _pod = sick.add("office", "web", None);
    sh("sysctl -qw net.ipv6.conf.cni0.disable_ipv6=1");
    let kinds: Vec<Value> = sick.doctor().1.iter().map(|finding| finding["kind"].clone()).collect();
    assert_eq!(kinds, ["ipv6-disabled", "gateway-address"]);
    sick.expect(
        "IPv6 is off",
        &[("ipv6-disabled", ERROR, "is 1", true), ("gateway-address", ERROR, "fd00:207:1::1", true)],
    );
}

/// A remedy for many containers is one that a shell takes, too.
#[test]
fn a_bridge_of_many_containers_comes_back_by_the_remedy_as_printed() {
    for damage in
        ["ip link delete cni0", "for link in $(ls /sys/class/net | grep ^veth); do ip link set $link nomaster; done"]
    {
        let sick = Sick::new();
        let add = |number| sick.add("office", &format!("web{number}"), (number == 0).then_some(8080));
        let pods: Vec<_> = (0..7).map(add).collect();
        sh(damage);
        let (kind, text) = if damage.contains("delete") {
            ("link-gone", "bridge cni0 is gone")
        } else {
            ("link-down", "links of living containers are no ports of bridge cni0")
        };
        sick.expect(damage, &[(kind, ERROR, text, true)]);
        let outside = "192.168.1.1".parse::<std::net::IpAddr>().unwrap();
        assert!(pods.iter().all(|pod| pod.namespace().pings(outside, LONG)), "{damage}");
    }
}

/// A bridge has one address, and containers that were added before and after it was made anew know two.
#[test]
fn a_repair_says_before_what_it_leaves_of_a_bridge_with_another_ethernet_address() {
    let sick = Sick::new();
    let _web = sick.add("office", "web", None);
    sh("ip link delete cni0");
    let _new = sick.add("office", "new", None);
    let repaired = |words: &[&str]| -> BTreeSet<String> {
        let output = sick.tour.call(&[&["--json", "repair", "office"], words].concat());
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let of = |row: &Value| (row["container"] == "web").then(|| row["verdict"].as_str().unwrap().to_owned());
        rows.iter().filter_map(of).collect()
    };
    assert_eq!(repaired(&["--dry-run"]), ["left", "would be repaired"].map(str::to_owned).into());
    assert_eq!(repaired(&[]), ["left", "repaired"].map(str::to_owned).into());
    assert_eq!(sick.tour.doctor(&["--no-check"]), (0, Vec::new()));
    let (_, findings) = sick.tour.doctor(&["--check"]);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0]["remedy"], "Start the container anew.");
}

/// Below version 1.1.0 there is no STATUS, and plugins of this suite answer all the same.
#[test]
fn status_of_an_old_version_asks_the_plugins_of_this_suite() {
    let sick = Sick::new();
    let list = json!({"cniVersion": "0.4.0", "name": "old", "plugins": [{"type": "macvlan", "master": "absent",
        "ipam": {"type": "host-local", "subnet": "10.250.0.0/24"}}]});
    fs::write("/etc/cni/net.d/20-old.conflist", list.to_string()).unwrap();
    let output = sick.tour.call(&["status", "old"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("there is no interface of that name"), "{said}");
    sh("sed -i s/absent/ens3/ /etc/cni/net.d/20-old.conflist");
    let output = sick.tour.call(&["--json", "status", "old"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"asked\": true"), "{output:?}");
    assert_eq!(output.stderr, b"", "{output:?}");
}

/// ADD refuses it whatever the node has.
#[test]
fn a_host_device_without_a_device_is_a_fault_of_the_configuration() {
    let sick = Sick::new();
    sick.network("20-nic", json!({"name": "nic", "plugins": [{"type": "host-device"}]}));
    let (exit, finding) = find(&sick, "config");
    assert_eq!(exit, ERROR);
    assert!(finding.unwrap()["evidence"].to_string().contains("none of the keys device"));
    // A runtime adds the device that the capability asks for.
    sick.network(
        "20-nic",
        json!({"name": "nic", "plugins": [{"type": "host-device", "capabilities": {"deviceID": true}}]}),
    );
    assert_eq!(find(&sick, "config").1, None);
}

/// A process keeps the namespace of the first container, at whose path there is another one's.
#[test]
fn nothing_is_done_in_the_namespace_that_has_a_containers_path_now() {
    let sick = Sick::new();
    let macvlan = json!({"name": "side", "plugins": [{"type": "macvlan", "master": "ens3",
        "ipam": {"type": "host-local", "subnet": "10.9.9.0/24", "gateway": "10.9.9.1"}}]});
    sick.network("20-side", macvlan);
    let mut kept = Vec::new();
    for id in ["web", "web2"] {
        sh("ip netns del web 2>/dev/null || true; ip netns add web");
        kept.push(fs::File::open("/run/netns/web").unwrap());
        for (network, ifname) in [("office", "eth0"), ("side", "net1")] {
            sick.tour.cnitool(&["add", network, "/run/netns/web", "--container-id", id, "--ifname", ifname]);
        }
    }
    let cached = "/var/lib/cni/results/office-web-eth0";
    for has_mark in [true, false] {
        if !has_mark {
            // As the reference's library writes it.
            let mut entry: Value = serde_json::from_slice(&fs::read(cached).unwrap()).unwrap();
            entry.as_object_mut().unwrap().remove("namespace").unwrap();
            fs::write(cached, entry.to_string()).unwrap();
        }
        let (_, findings) = sick.doctor();
        let text = json!(findings).to_string();
        assert!(!text.contains("nsenter") && !text.contains("container-side"), "{has_mark}: {findings:#?}");
        let said: Value = serde_json::from_str(&sick.tour.cnitool(&["explain", "web", "--json"])).unwrap();
        let of = |id: &str| {
            said.as_array().unwrap().iter().find(|it| it["attachment"]["container"] == id).unwrap()["drops"].clone()
        };
        assert!(!of("web").to_string().contains("in the container"), "{said:#}");
        assert_eq!(of("web2"), json!([]), "{said:#}");
    }
    drop(kept);
    sh("ip netns del web");
}

#[test]
fn an_add_that_was_cut_off_is_taken_back_by_the_remedy_as_printed() {
    let sick = Sick::new();
    let broken = |status: &str| {
        let script = format!(
            "#!/bin/sh\n[ $CNI_COMMAND != VERSION ] || {{ echo '{{\"supportedVersions\": [\"1.1.0\"]}}'; exit; }}\nexit {status}\n"
        );
        testns::write_executable(sick.tour.bin_dir.join("broken"), script).unwrap();
    };
    broken("1");
    sick.office(&json!([{"type": "bridge", "isGateway": true, "ipam": sick.tour.host_local()}, {"type": "broken"}]));
    let pod = sick.tour.node.container();
    let netns = netns(&pod);
    // A plugin of another PID namespace counts as running for as long as a plugin may take.
    let run = |command: &str| {
        let command = format!("export PATH={}:/usr/sbin:/usr/bin:/sbin:/bin; {command}", sick.tour.bin_dir.display());
        sick.tour.run_among_processes(Path::new("/bin/sh"), &["-c", &command])
    };
    assert!(!run(&format!("cnitool add office {netns} --container-id web")).status.success());
    // An ADD that may be under way is no fault.
    assert_eq!(find(&sick, "container-side").1, None);
    sh("touch -d '1 hour ago' /var/lib/cni/results/*");
    let finding = find(&sick, "container-side").1.unwrap();
    assert_eq!((&finding["what"], &finding["level"]), (&json!("its ADD was not finished"), &json!("warning")));
    let remedy = finding["remedy"].as_str().unwrap();
    assert_eq!(remedy, format!("cnitool del office {netns} --container-id web --ifname eth0"));
    broken("0");
    let output = run(remedy);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(find(&sick, "container-side").1, None);
}

/// A pod's author chooses the interface's name (Multus' annotation), and a container can rename a card that returns to the node.
#[test]
fn a_remedy_runs_nothing_that_a_links_name_contains() {
    let sick = Sick::new();
    let bridge =
        json!({"type": "bridge", "bridge": "b;false", "isDefaultGateway": true, "ipam": sick.tour.host_local()});
    sick.office(&json!([bridge]));
    let pod = sick.tour.node.container();
    let netns = netns(&pod);
    sick.tour.cnitool(&["add", "office", &netns, "--container-id", "web", "--ifname", "e$(false)x"]);
    assert_eq!(sick.doctor(), (0, Vec::new()));
    let (inside, address) = (format!("nsenter --net={netns} ip"), sick.tour.address(2));
    for damage in [
        format!("{inside} address flush dev 'e$(false)x'"),
        format!("{inside} link set 'e$(false)x' down"),
        "ip address flush dev 'b;false' scope global".to_owned(),
        "ip link set 'b;false' down".to_owned(),
        "ip link delete 'b;false'".to_owned(),
        format!("ip route add {address} dev lo"),
    ] {
        sh(&damage);
        assert_ne!(sick.doctor().0, 0, "{damage}");
        sick.mend(&damage);
    }
}

/// Several networks suffer from one setting of the node.
#[test]
fn a_fault_of_the_node_is_one_finding() {
    let sick = Sick::new();
    let lan = json!({"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.208.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}});
    sick.network("20-lan", json!({"name": "lan", "plugins": [lan]}));
    let _web = sick.add("office", "web", None);
    let _db = sick.add("lan", "db", None);
    assert_eq!(sick.doctor(), (0, Vec::new()));
    sh("sysctl -qw net.ipv4.ip_forward=0");
    let (_, findings) = sick.doctor();
    let [finding] = findings.as_slice() else { panic!("{findings:#?}") };
    assert_eq!((&finding["kind"], &finding["network"]), (&json!("forwarding-off"), &json!(null)));
    assert_eq!(finding["evidence"], json!(["network lan: db/eth0", "network office: web/eth0"]));
    sick.mend("forwarding");
}

/// Containers come and go while doctor looks.
#[test]
fn containers_that_come_and_go_are_no_fault() {
    let sick = Sick::new();
    let _web = sick.add("office", "web", Some(8080));
    let other = sick.tour.node.container();
    let netns = netns(&other);
    let cnitool = sick.tour.bin_dir.join("cnitool").display().to_string();
    let call = |verb: &str| format!("{cnitool} {verb} office {netns} --container-id other >/dev/null || exit 1");
    let script = format!("for i in $(seq 30); do {}; {}; done", call("add"), call("del"));
    let mut traffic = Command::new("sh").args(["-c", &script]).env("CNI_PATH", &sick.tour.bin_dir).spawn().unwrap();
    let mut looks = 0;
    while traffic.try_wait().unwrap().is_none() {
        assert_eq!(sick.doctor(), (0, Vec::new()));
        looks += 1;
    }
    assert!(traffic.wait().unwrap().success() && looks > 1, "{looks}");
    sh("ip link set cni0 down");
    assert_eq!(sick.doctor().0, ERROR);
}

/// DEL has removed the container's interface, and waits for a plugin: nothing is wrong, and doctor says whom it does not judge.
#[test]
fn an_attachment_whose_del_is_in_progress_is_not_judged() {
    let sick = Sick::new();
    let script = r#"#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}' ;;
ADD) echo '{"cniVersion":"1.1.0"}' ;;
DEL) cat /run/gate ;;
esac"#;
    testns::write_executable(sick.tour.bin_dir.join("waits"), script).unwrap();
    let bridge = json!({"type": "bridge", "isDefaultGateway": true, "ipam": sick.tour.host_local()});
    sick.office(&json!([{"type": "waits"}, bridge]));
    sh("mkfifo /run/gate");
    let web = sick.add("office", "web", None);
    let netns = netns(&web);
    let words = ["del", "office", &netns, "--container-id", "web"];
    let del = Command::new(sick.tour.bin_dir.join("cnitool")).args(words).env("CNI_PATH", &sick.tour.bin_dir).spawn();
    let mut del = del.unwrap();
    web.namespace().wait_for("DEL removes the interface", |inside| inside.find_link("eth0").is_none());
    let shown = sick.tour.cnitool(&["doctor"]);
    let text = "attachments whose ADD or DEL is in progress, or was meanwhile: web/eth0";
    assert!(shown.contains(text) && !shown.contains("container-side"), "{shown}");
    fs::write("/run/gate", "").unwrap();
    assert!(del.wait().unwrap().success());
    let shown = sick.tour.cnitool(&["doctor"]);
    assert!(!shown.contains(text), "{shown}");
}
