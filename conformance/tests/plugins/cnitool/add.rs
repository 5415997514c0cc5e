//! `cnitool add` of what is attached, or is being attached.

use super::{Tour, netns};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, Stdio};

impl Tour {
    fn start(&self, words: &[&str]) -> Child {
        let mut command = Command::new(self.bin_dir.join("cnitool"));
        command.args(words).env_clear().env("CNI_PATH", &self.bin_dir);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    pub(super) fn reserved(&self) -> usize {
        let entries = std::fs::read_dir("/var/lib/cni/networks/office").unwrap();
        let starts = |name: &str| name.starts_with(&self.subnet);
        entries.filter(|entry| starts(entry.as_ref().unwrap().file_name().to_str().unwrap())).count()
    }
}

/// A kubelet does so after a time-out. The one that loses takes nothing from the one that wins.
#[test]
fn of_two_adds_at_once_one_succeeds_and_its_check_passes() {
    let tour = Tour::with_plugins();
    let pod = tour.node.container();
    let netns = netns(&pod);
    for round in 0..12 {
        let mut both = [(), ()].map(|()| tour.start(&["add", "office", &netns]));
        let codes = both.each_mut().map(|add| add.wait().unwrap().code());
        assert!(codes == [Some(0), Some(1)] || codes == [Some(1), Some(0)], "round {round}: {codes:?}");
        tour.cnitool(&["check", "office", &netns]);
        assert_eq!((pod.namespace().global_addresses("eth0").len(), tour.reserved()), (1, 1), "round {round}");
        tour.cnitool(&["del", "office", &netns]);
        assert_eq!(tour.reserved(), 0);
    }
}

/// A runtime that starts a container anew under its ID, or a container that has renamed its interface.
#[test]
fn a_second_add_leaves_the_container_that_lives_as_it_is() {
    let tour = Tour::with_plugins();
    let pods = [tour.node.container(), tour.node.container()];
    let [first, second] = pods.each_ref().map(netns);
    let words = |netns: &str| ["--container-id", "c1", "add", "office", netns].map(str::to_owned);
    let add = |netns: &str| {
        let words = words(netns);
        tour.start(&words.each_ref().map(String::as_str)).wait().unwrap().code()
    };
    assert_eq!(add(&first), Some(0));
    let address = pods[0].namespace().global_addresses("eth0");
    assert_eq!(add(&second), Some(1));
    assert_eq!((pods[0].namespace().global_addresses("eth0"), tour.reserved()), (address.clone(), 1));
    pods[0].namespace().enter(|| {
        for words in ["link set eth0 down", "link set eth0 name renamed", "link set renamed up"] {
            assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success());
        }
    });
    assert_eq!((add(&first), add(&second)), (Some(1), Some(1)));
    assert_eq!((pods[0].namespace().global_addresses("renamed"), tour.reserved()), (address, 1));
    assert!(pods[1].namespace().find_link("eth0").is_none());
    let entry = std::fs::read_to_string(Path::new("/var/lib/cni/results/office-c1-eth0")).unwrap();
    assert!(entry.contains(&first), "{entry}");
}

/// A rollback's DEL would remove it: a veth of the reference's has no mark that says whose it is.
#[test]
fn an_add_whose_interface_is_there_already_leaves_it() {
    let tour = Tour::with_plugins();
    let pod = tour.node.container();
    pod.namespace().add_veth("eth0", tour.node.host(), "theirs");
    let netns = netns(&pod);
    let words = ["--json", "add", "office", &netns];
    let refused = tour.call(&words);
    assert_eq!(refused.status.code(), Some(1));
    let error: Value = serde_json::from_slice(&refused.stderr).unwrap();
    let msg = format!("cannot add network office: interface eth0 is in {netns} already, a veth");
    assert_eq!((&error["code"], &error["msg"]), (&json!(103), &json!(msg)));
    assert!(pod.namespace().find_link("eth0").is_some() && tour.node.host().find_link("theirs").is_some());
    pod.namespace().delete_link("eth0");
    // Once it is attached, a second ADD is the plugin's to refuse.
    tour.cnitool(&["add", "office", &netns]);
    assert_eq!(tour.call(&words).status.code(), Some(1));
    tour.cnitool(&["check", "office", &netns]);
}
