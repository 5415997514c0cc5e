//! `cnitool ipam`.

use crate::fixture::Tool;
use expect_test::expect;
use serde_json::Value;
use std::fs::File;
use std::time::{Duration, Instant, SystemTime};

/// A network of two ranges; two addresses are a container's, one an operator's.
fn tool() -> Tool {
    let tool = Tool::new();
    let dir = tool.path("data");
    let list = serde_json::json!({"cniVersion": "1.1.0", "name": "pods", "plugins": [{"type": "bridge", "ipam": {
        "type": "host-local", "dataDir": dir,
        "ranges": [[{"subnet": "10.1.0.0/28"}], [{"subnet": "fd00::/64", "rangeEnd": "fd00::10"}]]}}]});
    tool.write("net.d/pods.conflist", &list.to_string());
    for (address, content) in [("10.1.0.2", "c1\r\neth0"), ("fd00::2", "c1\r\neth0"), ("10.1.0.9", "printer, \"old\"")]
    {
        let path = tool.write(&format!("data/pods/{address}"), content);
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
    }
    tool
}

/// The columns `boot` and `life` of these addresses.
fn boot_and_life(tool: &Tool, addresses: &[&str]) -> Vec<String> {
    let rows: Vec<Value> = serde_json::from_str(&tool.run(&["--json", "ipam", "list"]).ok()).unwrap();
    let shown = |address: &&str| {
        let row = rows.iter().find(|row| row["address"] == **address).unwrap();
        format!("{}, {}", row["boot"].as_str().unwrap(), row["life"].as_str().unwrap())
    };
    addresses.iter().map(shown).collect()
}

#[test]
fn held_addresses_are_listed_with_their_holders() {
    let tool = tool();
    expect![[r#"
        0
        stdout: NETWORK  ADDRESS   CONTAINER  IFNAME  SINCE                 BOOT     LIFE
        pods     10.1.0.2  c1         eth0    2023-11-14T22:13:20Z  earlier  gone
        pods     10.1.0.9  -          -       2023-11-14T22:13:20Z  earlier  reserved by hand
        pods     fd00::2   c1         eth0    2023-11-14T22:13:20Z  earlier  gone

        stderr: "#]]
    .assert_eq(&tool.run(&["ipam", "list"]).shown());
    expect![[r#"
        0
        stdout: network,address,container,ifname,since,boot,life
        pods,10.1.0.2,c1,eth0,2023-11-14T22:13:20Z,earlier,gone
        pods,10.1.0.9,,,2023-11-14T22:13:20Z,earlier,reserved by hand
        pods,fd00::2,c1,eth0,2023-11-14T22:13:20Z,earlier,gone

        stderr: "#]]
    .assert_eq(&tool.run(&["ipam", "list", "pods", "--csv"]).shown().replace('\r', ""));
    expect![[r#"
        0
        stdout: [
            {
                "network": "pods",
                "address": "10.1.0.2",
                "container": "c1",
                "pod": null,
                "namespace": null,
                "ifname": "eth0",
                "since": "2023-11-14T22:13:20Z",
                "boot": "earlier",
                "life": "gone"
            },
            {
                "network": "pods",
                "address": "10.1.0.9",
                "container": null,
                "pod": null,
                "namespace": null,
                "ifname": null,
                "since": "2023-11-14T22:13:20Z",
                "boot": "earlier",
                "life": "reserved by hand"
            },
            {
                "network": "pods",
                "address": "fd00::2",
                "container": "c1",
                "pod": null,
                "namespace": null,
                "ifname": "eth0",
                "since": "2023-11-14T22:13:20Z",
                "boot": "earlier",
                "life": "gone"
            }
        ]

        stderr: "#]]
    .assert_eq(&tool.run(&["--json", "ipam", "list", "pods"]).shown());
}

#[test]
fn free_addresses_are_counted() {
    let tool = tool();
    expect![[r#"
        0
        stdout: NETWORK  SET  FIRST     LAST       TOTAL  USED  FREE
        pods     0    10.1.0.1  10.1.0.14  13     2     11
        pods     1    fd00::1   fd00::10   15     1     14

        stderr: "#]]
    .assert_eq(&tool.run(&["ipam", "free"]).shown());
    assert_eq!(tool.run(&["ipam", "free", "net"]).ok(), "");
    expect![[r#"
        1
        stdout: 
        stderr: error: no net configuration with name "absent" in $DIR/net.d
          The folder has net, pods.
    "#]]
    .assert_eq(&tool.run(&["ipam", "free", "absent"]).shown());
}

#[test]
fn a_reserved_address_is_held_until_it_is_released() {
    let tool = tool();
    for (words, shown) in [
        (&["ipam", "reserve", "pods", "10.1.0.5"][..], "0"),
        (&["ipam", "reserve", "pods", "10.1.0.5"], "cannot reserve 10.1.0.5 in network pods: it is reserved already"),
        (
            &["ipam", "reserve", "pods", "10.9.0.5"],
            "cannot reserve 10.9.0.5 in network pods: it is in no range of the network",
        ),
        (&["ipam", "reserve", "pods", "fd00::5"], "0"),
    ] {
        let run = tool.run(words).shown();
        assert!(run.starts_with("0") == (shown == "0") && run.contains(shown), "{words:?}: {run}");
    }
    assert_eq!(boot_and_life(&tool, &["10.1.0.5", "fd00::5"]), ["this, reserved by hand"; 2]);
    assert!(tool.run(&["ipam", "release", "pods", "10.1.0.5"]).shown().starts_with('0'));
    let again = tool.run(&["ipam", "release", "pods", "10.1.0.5"]).shown();
    assert!(again.contains("cannot release 10.1.0.5 in network pods: it is not reserved"), "{again}");
}

/// A reservation younger than a minute may belong to an ADD under way.
#[test]
fn an_address_of_a_container_that_may_live_is_released_by_force_only() {
    let tool = tool();
    tool.write("data/pods/10.1.0.3", "c3\r\neth0");
    assert_eq!(boot_and_life(&tool, &["10.1.0.3", "10.1.0.2"]), ["this, young", "earlier, gone"]);
    let refused = tool.run(&["ipam", "release", "pods", "10.1.0.3"]).shown();
    assert!(refused.contains("it is reserved for container c3, whose state is: young"), "{refused}");
    assert!(tool.path("data/pods/10.1.0.3").exists());
    assert!(tool.run(&["ipam", "release", "pods", "10.1.0.3", "--force"]).shown().starts_with('0'));
    assert!(!tool.path("data/pods/10.1.0.3").exists());
    assert!(tool.run(&["ipam", "release", "pods", "10.1.0.2"]).shown().starts_with('0'), "c1 is gone");
    assert!(!tool.path("data/pods/10.1.0.2").exists() && tool.path("data/pods/fd00::2").exists());
}

/// The error names the lock's file and who holds it.
#[test]
fn a_store_that_is_locked_is_waited_for_until_the_timeout() {
    let tool = tool();
    let path = tool.write("data/pods/lock", "");
    let lock = File::open(&path).unwrap();
    lock.lock().unwrap();
    let holder = format!("process {}", std::process::id());
    for words in [["ipam", "reserve", "pods", "10.1.0.5"], ["ipam", "release", "pods", "10.1.0.9"]] {
        let begin = Instant::now();
        let run = tool.run(&[&words[..], &["--timeout", "1"]].concat()).shown();
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
        assert!(run.starts_with('1') && run.contains("data/pods/lock") && run.contains(&holder), "{words:?}: {run}");
    }
    drop(lock);
    assert!(!tool.path("data/pods/10.1.0.5").exists() && tool.path("data/pods/10.1.0.9").exists());
}

/// Another program's file, perhaps, or a damaged one: nothing says that the address is free.
#[test]
fn an_address_whose_owner_is_no_valid_name_is_released_by_force_only() {
    let tool = tool();
    tool.write("data/pods/10.1.0.3", "q/q\r\neth0");
    assert_eq!(boot_and_life(&tool, &["10.1.0.3"]), ["this, names no valid owner"]);
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot release 10.1.0.3 in network pods: $DIR/data/pods/10.1.0.3 names no valid owner
          --force releases it.
    "#]]
    .assert_eq(&tool.run(&["ipam", "release", "pods", "10.1.0.3"]).shown());
    assert!(tool.path("data/pods/10.1.0.3").exists());
    tool.run(&["ipam", "release", "pods", "10.1.0.3", "--force"]).ok();
    assert!(!tool.path("data/pods/10.1.0.3").exists());
}
