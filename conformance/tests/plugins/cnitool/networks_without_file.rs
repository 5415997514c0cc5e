//! Networks that no file explains: a plugin that calls others gives them one, a file was removed, or only another runtime's cache
//! has it. Their addresses, links and rules are found on the node, and all verbs know them.

use super::{Tour, make_old, netns};
use crate::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Calls `bridge` with addresses that no file names, as flannel does. DEL goes by a record of its own, which may be gone.
const CALLER: &str = r#"#!/bin/sh
record=/run/caller-$CNI_CONTAINERID
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["0.3.1","0.4.0","1.0.0"]}'; exit;;
ADD) : > $record;;
DEL) [ -e $record ] || exit 0; rm $record;;
esac
cat > /run/caller-stdin
exec "${0%/*}/bridge" <<X
{"cniVersion":"0.3.1","name":"cbr0","type":"bridge","ipMasq":true,"isDefaultGateway":true,
 "ipam":{"type":"host-local","subnet":"SUBNET.0/29"}}
X
"#;

fn store(network: &str) -> PathBuf {
    Path::new("/var/lib/cni/networks").join(network)
}

fn held(network: &str) -> Vec<String> {
    let names = fs::read_dir(store(network)).into_iter().flatten().flatten();
    let mut names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| name.starts_with("10."));
    names.sort();
    names
}

fn forget_all() {
    fs::remove_dir_all("/var/lib/cni/results").unwrap();
}

impl Tour {
    fn of_caller() -> Self {
        let tour = Self::with_plugins();
        let script = CALLER.replace("SUBNET", &tour.subnet);
        testns::write_executable(tour.bin_dir.join("caller"), &script).unwrap();
        fs::remove_file("/etc/cni/net.d/10-office.conflist").unwrap();
        let network = json!({"cniVersion": "0.3.1", "name": "cbr0", "plugins": [{"type": "caller"}]});
        fs::write("/etc/cni/net.d/10-caller.conflist", network.to_string()).unwrap();
        tour
    }

    fn pod_on(&self, network: &str, id: &str) -> Container {
        let pod = self.node.container_named(id);
        let netns = netns(&pod);
        self.cnitool(&["add", network, &netns, "--container-id", id]);
        held(network).iter().for_each(|address| make_old(&store(network).join(address)));
        pod
    }

    fn said(&self, words: &[&str]) -> String {
        let Output { stdout, stderr, .. } = self.call(words);
        String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr)
    }

    fn leftover(&self, network: &str) -> Option<(String, String)> {
        let (_, findings) = self.doctor(&[]);
        let found = findings.iter().find(|one| one["kind"] == "leftover" && one["network"] == network)?;
        Some((found["evidence"].to_string(), found["remedy"].as_str().unwrap().to_owned()))
    }

    pub(super) fn shell(&self, command: &str) -> Output {
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.bin_dir.display());
        self.run(Path::new("/bin/sh"), &["-c", &format!("export PATH={path}; {command}")])
    }

    fn rules_of(&self, network: &str) -> usize {
        let all = self.node.host().nft();
        all.iter().filter(|line| line.contains(&format!("net: {network},"))).count()
    }
}

/// The commonest leak of all: the folder is full of addresses of pods that are gone, and no cache knows them.
#[test]
fn addresses_that_a_called_plugin_gave_are_listed_and_collected() {
    for is_recorded in [true, false] {
        let tour = Tour::of_caller();
        let pods = ["living", "one", "two"].map(|id| tour.pod_on("cbr0", id));
        let list = tour.cnitool(&["ipam", "list", "cbr0"]);
        assert_eq!((list.matches("  lives").count(), list.lines().count()), (3, 4), "{list}");
        assert!(tour.said(&["ipam", "free", "cbr0"]).contains("no configuration names ranges of host-local"));
        let release = ["ipam", "release", "cbr0", &tour.address(2)];
        assert!(tour.said(&release).contains("it is reserved for container living, whose state is: lives"));
        pods[1..].iter().for_each(|pod| tour.lose(pod));
        forget_all();
        if !is_recorded {
            ["one", "two"].iter().for_each(|id| fs::remove_file(format!("/run/caller-{id}")).unwrap());
        }
        let (rules, addresses) = (tour.rules_of("cbr0"), [2, 3, 4].map(|last| tour.address(last)));
        assert_eq!(held("cbr0"), addresses);
        assert!(rules > 0 && tour.cnitool(&["metrics"]).contains(r#"cni_attachments{network="cbr0",state="gone"} 2"#));
        let (evidence, remedy) = tour.leftover("cbr0").unwrap();
        assert!(evidence.contains(&addresses[1]) && evidence.contains(&addresses[2]), "{evidence}");
        assert!(!evidence.contains(&addresses[0]), "{evidence}");
        let dry = tour.cnitool(&["gc", "cbr0", "--dry-run", "--json"]);
        assert_eq!((dry.matches("would be deleted").count(), dry.matches("would be kept").count()), (2, 1), "{dry}");
        assert_eq!(held("cbr0"), addresses, "a dry run changes nothing");
        let done = tour.shell(&remedy);
        assert!(done.status.success(), "{remedy}: {done:?}");
        assert_eq!((held("cbr0"), tour.rules_of("cbr0") * 3), (vec![addresses[0].clone()], rules), "{done:?}");
        assert_eq!(pods[0].namespace().global_addresses("eth0"), [format!("{}/29", addresses[0])]);
        assert_eq!(tour.leftover("cbr0"), None);
        tour.lose(&pods[0]);
        tour.cnitool(&release);
        assert_eq!(held("cbr0"), [""; 0]);
    }
}

/// The file of the network was removed, and the cache with it: another CNI came in its place.
#[test]
fn what_a_network_without_file_left_is_found_and_removed_and_the_living_stay() {
    let tour = Tour::with_plugins();
    let (living, dead) = (tour.pod_on("office", "living"), tour.pod_on("office", "dead"));
    tour.lose(&dead);
    forget_all();
    fs::remove_file("/etc/cni/net.d/10-office.conflist").unwrap();
    let other = json!({"cniVersion": "1.1.0", "name": "other", "plugins": [{"type": "loopback"}]});
    fs::write("/etc/cni/net.d/05-other.conflist", other.to_string()).unwrap();

    let rules = tour.rules_of("office");
    let list = tour.cnitool(&["ipam", "list"]);
    assert!(list.contains("  living  ") && list.contains("  dead  "), "{list}");
    let (evidence, remedy) = tour.leftover("office").unwrap();
    assert!(
        evidence.contains("dead/eth0") && evidence.contains("masquerade") && !evidence.contains("living"),
        "{evidence}"
    );
    let target = ["office", "/run/netns/gone", "--container-id", "dead"];
    let refused = tour.said(&[&["forget"], &target[..]].concat());
    assert!(refused.contains("Remove it with del or gc"), "{refused}");
    assert_eq!(remedy, "cnitool gc office");
    let done = tour.shell(&remedy);
    assert!(done.status.success() && String::from_utf8_lossy(&done.stderr).contains("kept living/eth0"), "{done:?}");
    assert_eq!((held("office"), tour.rules_of("office") * 2), (vec![tour.address(2)], rules), "{done:?}");
    assert_eq!(living.namespace().global_addresses("eth0"), [tour.address(2) + "/24"]);
    assert_eq!(tour.leftover("office"), None);
    // The attachment that gc named as kept, once its container is gone.
    tour.lose(&living);
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    let (_, command) = stderr.split_once("this removes it: ").unwrap();
    let deleted = tour.shell(command.lines().next().unwrap());
    assert!(deleted.status.success(), "{deleted:?}");
    assert_eq!((held("office"), tour.rules_of("office")), (vec![], 0));
}

/// Rules alone: the folder of addresses was removed by hand.
#[test]
fn a_network_is_known_by_the_comments_of_its_rules() {
    let tour = Tour::with_plugins();
    let pod = tour.pod_on("office", "dead");
    tour.lose(&pod);
    forget_all();
    fs::remove_file("/etc/cni/net.d/10-office.conflist").unwrap();
    fs::remove_dir_all(store("office")).unwrap();
    assert!(tour.rules_of("office") > 0 && tour.cnitool(&["show"]).contains("masquerade of"));
    let (evidence, remedy) = tour.leftover("office").unwrap();
    assert!(evidence.contains("masquerade"), "{evidence}");
    assert!(tour.shell(&remedy).status.success());
    assert_eq!((tour.rules_of("office"), tour.leftover("office")), (0, None));
}

/// Status 0 and no word would look as if something had been done.
#[test]
fn a_verb_that_did_nothing_says_why() {
    let tour = Tour::with_plugins();
    for words in [&["gc", "office"][..], &["gc", "office", "--dry-run"]] {
        let said = tour.said(words);
        assert_eq!(
            said, "note: network office has nothing on the node or in the cache: nothing to remove\n",
            "{words:?}"
        );
    }
    let said = tour.said(&["--json", "ipam", "list", "office"]);
    assert!(said.contains(r#"{"level":"info","msg":"network office: no address is reserved in "#), "{said}");
    let lo = json!({"cniVersion": "1.1.0", "name": "lo", "plugins": [{"type": "loopback"}]});
    fs::write("/etc/cni/net.d/20-lo.conflist", lo.to_string()).unwrap();
    assert_eq!(tour.said(&["ipam", "list", "lo"]), "note: network lo has no addresses of host-local\n");
    assert!(!tour.call(&["gc", "absent"]).status.success());
}
