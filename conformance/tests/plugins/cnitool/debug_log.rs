//! README: `CNI_LOG=debug` has a line for each step.

use super::Tour;
use std::process::Command;

#[test]
fn the_debug_log_has_a_line_for_each_step() {
    let tour = Tour::with_plugins();
    let netns = tour.node.container().namespace().path().display().to_string();
    let log = |verb: &str| {
        let mut command = Command::new(tour.bin_dir.join("cnitool"));
        command.args([verb, "office", &netns]).env_clear().env("CNI_PATH", &tour.bin_dir).env("CNI_LOG", "debug");
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let steps = |verb: &str, steps: &[&str]| {
        let log = log(verb);
        let missing: Vec<_> = steps.iter().filter(|step| !log.lines().any(|line| line.contains(**step))).collect();
        assert!(missing.is_empty(), "{missing:?} is not in\n{log}");
    };
    let (gateway, first) = (tour.address(1), tour.address(2));
    steps(
        "add",
        &[
            "create bridge cni0",
            "create veth",
            &format!("reserved address={first}"),
            &format!("add address {first}/24 on eth0"),
            "write sysctl",
            &format!("add address {gateway}/24 on cni0"),
            "create nft rule",
        ],
    );
    steps("del", &[&format!("released address={first}"), "delete nft", "delete link veth"]);
}
