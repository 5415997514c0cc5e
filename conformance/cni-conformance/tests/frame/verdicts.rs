//! Pass, fail, skip, broken.

use crate::run_kit::{Bin, HONEST, kit, plugin, say, sum};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

const LEAVES: [&str; 2] = ["--rule", "del.leaves-nothing"];

#[test]
fn an_honest_plugin_passes() {
    let bin = Bin::with("mine", HONEST);
    let config = bin.config("a.conf", r#"{"type":"mine","ipam":{"type":"host-local"}}"#);
    let said = say(plugin(&bin, &["--config", config.to_str().unwrap(), LEAVES[0], LEAVES[1]]));
    said.has(0, &[&sum(1, 0, 0, 0)]);
    assert!(said.stderr.is_empty(), "{}", said.stderr);
}

/// And a folder that each testbed hides under an empty one.
#[test]
fn a_plugin_below_run_passes() {
    let bin = Bin::hidden();
    bin.put("loopback", HONEST);
    say(plugin(&bin, &["--only", "loopback", LEAVES[0], LEAVES[1]])).has(0, &[&sum(1, 0, 0, 0)]);
}

#[test]
fn a_plugin_that_leaves_a_link_fails() {
    let leave = "ADD) ip link add left type ifb; echo '{\"cniVersion\":\"1.0.0\"}' ;;";
    let bin = Bin::with("loopback", &HONEST.replace("ADD)", &format!("{leave}\nNEVER)")));
    // The second ADD finds the link of the first, which counts as the network's; so the name has to be new.
    bin.put(
        "loopback",
        &HONEST.replace("ADD)", &format!("{}\nNEVER)", leave.replace("left", "\"l$CNI_CONTAINERID\""))),
    );
    let said = say(plugin(&bin, &["--only", "loopback", LEAVES[0], LEAVES[1], "--seed", "7"]));
    said.has(0, &[
        "del.leaves-nothing",
        "SPEC 2, DEL","DEL takes back everything",
        "the node as before ADD",
        "+ link lpod-00002 kind \"ifb\"",
        "    printf %s '{\"type\":\"loopback\",\"cniVersion\":\"1.0.0\",\"name\":\"conformance\"}' | env -i CNI_COMMAND=ADD",
        "--only loopback --rule del.leaves-nothing --seed 7",
    ]);
    said.has(0, &[&sum(0, 1, 0, 0)]);
}

#[test]
fn a_plugin_that_leaves_a_process_fails() {
    let bin = Bin::with("loopback", &HONEST.replace("ADD)", "ADD) sleep 4321 </dev/null >/dev/null 2>&1 &"));
    let said = say(plugin(&bin, &["--only", "loopback", LEAVES[0], LEAVES[1]]));
    let is_seen = crate::restricted_machine::may_mount_proc();
    said.has(0, if is_seen { &["+ process", "sleep 4321"] } else { &["shares its process namespace"] });
}

#[test]
fn a_plugin_that_does_not_say_its_versions_fails_and_no_more_is_tried() {
    for silent in ["exit 1", "echo '{}'", "echo '{\"supportedVersions\":[\"7.0.0\"]}'", "echo text; kill -9 $$"] {
        let said = say(plugin(&Bin::with("loopback", silent), &["--only", "loopback"]));
        said.has(1, &["version.lists-versions", &sum(0, 1, 0, 0)]);
    }
}

#[test]
fn a_call_that_hangs_is_a_finding() {
    let bin = Bin::with("loopback", &HONEST.replace("ADD)", "ADD) sleep 4322;"));
    let said = say(plugin(&bin, &["--only", "loopback", LEAVES[0], LEAVES[1], "--call-deadline", "1"]));
    said.has(0, &["the plugin did not end within 1 s", "1000 ms", &sum(0, 1, 0, 0)]);
}

#[test]
fn a_case_that_hangs_is_broken() {
    let bin = Bin::with("loopback", &HONEST.replace("ADD)", "ADD) sleep 4323;"));
    let said = say(plugin(&bin, &["--only", "loopback", LEAVES[0], LEAVES[1], "--case-deadline", "1"]));
    said.has(3, &["del.leaves-nothing", "did not end within 1 s", &sum(0, 0, 0, 1)]);
}

#[test]
fn what_cannot_be_tried_is_skipped() {
    let said = say(plugin(&Bin::with("static", HONEST), &["--only", "static", "--rule", "ipam.exhausted-is-an-error"]));
    said.has(0, &["the kit does not know how to make its pool small", &sum(0, 0, 1, 0)]);
}

/// The plugin's own folder, as its script finds it: a trial does not see it where the test does.
const OWN_FOLDER: &str = "\"$(dirname \"$(readlink -f \"$0\")\")\"";

/// `tuning` leaves sysctls with a reason that its profile has; a profile file may have others.
#[test]
fn what_does_not_bind_is_exempt_with_its_reason() {
    let bin = Bin::with("tuning", HONEST);
    let said = say(plugin(&bin, &["--only", "tuning", "--rule", "del.undoes-modifications"]));
    said.has(
        0,
        &[
            "pass 1, exempt 1",
            "exempt: 1 trial of del.undoes-modifications: sysctls end with",
            &format!("{}, 1 exempt", sum(1, 0, 0, 0)),
        ],
    );
    let config =
        r#"{ "folder": ".", "config": { "type": "tuning" }, "unbound": { "version.": "it is of one version" } }"#;
    let file = bin.config("mine.json", config);
    let said = say(kit(&["plugin", "--profile", file.to_str().unwrap(), "--rule", "version.echoes"]));
    said.has(0, &["1 exempt", "exempt: 1 trial of version.echoes: it is of one version (tuning: mine)"]);
}

/// Each plugin of a list is called, ADD forward and DEL backward.
#[test]
fn a_list_is_driven_as_a_runtime_does() {
    let bin = Bin::new();
    // Anything else than a pipe would be for reading only.
    nix::unistd::mkfifo(&bin.path().join("log"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut log = File::options().read(true).write(true).open(bin.path().join("log")).unwrap();
    let has = r#"stdin=$(cat); has() { case "$stdin" in *$1*) echo $1 ;; esac; }"#;
    let said = "${0##*/} $CNI_COMMAND $(has prevResult) $(has runtimeConfig) $(has capabilities)";
    let script = format!("{has}\necho {said} >>{OWN_FOLDER}/log\n{HONEST}");
    bin.put("one", &script);
    bin.put("two", &script);
    let config = bin.config("a.conflist", r#"{"plugins":[{"type":"one"},{"type":"two","capabilities":{"mac":true}}]}"#);
    let said = say(plugin(&bin, &["--config", config.to_str().unwrap(), LEAVES[0], LEAVES[1]]));
    said.has(0, &[&sum(1, 0, 0, 0)]);
    let once = "one ADD\ntwo ADD prevResult runtimeConfig\ntwo DEL prevResult runtimeConfig\none DEL prevResult\n";
    writeln!(log, "end").unwrap();
    let lines = BufReader::new(log).lines().map(Result::unwrap);
    let calls: Vec<_> = lines.take_while(|line| line != "end").collect();
    let calls: String = calls.iter().filter(|line| !line.contains("VERSION")).map(|line| format!("{line}\n")).collect();
    assert_eq!(calls, once.repeat(2));
}

/// kill -9 of the kit takes every process of its trials with it.
#[test]
fn nothing_outlives_the_kit() {
    if !crate::restricted_machine::may_mount_proc() {
        return testns::skip("nothing_outlives_the_kit", "this machine hides parts of its /proc");
    }
    let bin = Bin::new();
    let fifo = bin.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    bin.put("loopback", &HONEST.replace("ADD)", &format!("ADD) exec 3>{OWN_FOLDER}/fifo; exec sleep 4324;")));
    let mut command = plugin(&bin, &["--only", "loopback", LEAVES[0], LEAVES[1]]);
    let mut kit = command.stdout(Stdio::null()).spawn().unwrap();
    let mut held_by_plugin = File::open(&fifo).unwrap(); // waits for the plugin
    kit.kill().unwrap();
    kit.wait().unwrap();
    let (ended, news) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        held_by_plugin.read_to_end(&mut Vec::new()).unwrap(); // waits for the plugin's end
        ended.send(()).unwrap();
    });
    news.recv_timeout(std::time::Duration::from_secs(10)).expect("the plugin still runs");
}
