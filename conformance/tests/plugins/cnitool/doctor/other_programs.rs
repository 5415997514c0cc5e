//! `cnitool doctor` and what other programs of a node do, or do not: daemons that have not run, and containers beside
//! each other.

use super::ERROR;
use super::lost_packets::{Sick, sh};
use crate::cnitool::netns;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The finding of a kind, with the exit code of doctor.
fn find(sick: &Sick, kind: &str) -> (i32, Option<Value>) {
    let (exit, findings) = sick.doctor();
    (exit, findings.into_iter().find(|finding| finding["kind"] == kind))
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
