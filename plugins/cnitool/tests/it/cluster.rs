//! `cnitool cluster`, with a script in the place of the plugin.

use crate::fixture::Tool;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

fn tool(ipam: &str) -> Tool {
    let tool = Tool::new();
    let list = serde_json::json!({"cniVersion": "1.1.0", "name": "lan", "plugins": [
        {"type": "tuning"}, {"type": "macvlan", "ipam": {"type": ipam, "subnet": "10.1.0.0/28"}}]});
    tool.write("net.d/lan.conflist", &list.to_string());
    let script = tool.write("bin/cluster", "#!/bin/sh\necho \"$@\"\ntr -d ' \\n'\nexit 3\n");
    std::fs::set_permissions(script, Permissions::from_mode(0o755)).unwrap();
    tool
}

#[test]
fn the_verbs_are_the_plugins_and_get_the_networks_configuration() {
    let tool = tool("cluster");
    let bin = tool.path("bin");
    for (words, passed) in [
        (&["show", "lan"][..], "show -"),
        (&["check", "lan", "--json"], "check - --json"),
        (&["check", "lan", "--probe"], "check - --probe"),
        (&["check", "lan", "--probe", "--link", "eth1", "--json"], "check - --probe --link eth1 --json"),
        (&["forget", "lan", "n7", "--fenced"], "forget - n7 --fenced"),
        (&["forget", "lan", "n7", "--force"], "forget - n7 --force"),
        (&["forget", "lan", "n7", "--cancel"], "forget - n7 --cancel"),
        (&["init", "lan"], "init -"),
        (&["repair", "lan"], "repair -"),
        (&["repair", "lan", "--begin"], "repair - --begin"),
        (&["adopt", "lan", "--end"], "adopt - --end"),
        (&["leave", "lan", "--ending"], "leave - --ending"),
        (&["release", "lan", "shop/db-0"], "release - shop/db-0"),
        (&["import", "lan", "./pools.json"], "import - ./pools.json"),
    ] {
        let said = tool.run(&[&["--cni-path", bin.to_str().unwrap(), "cluster"], words].concat()).shown();
        let config =
            r#"{"type":"macvlan","ipam":{"type":"cluster","subnet":"10.1.0.0/28"},"name":"lan","cniVersion":"1.1.0"}"#;
        let (status, rest) = said.split_once("\nstdout: ").unwrap();
        assert_eq!(status, "3", "{said}");
        let (arguments, given) = rest.split_once('\n').unwrap();
        let given = given.split("\nstderr").next().unwrap();
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!((arguments, value(given)), (passed, value(config)), "{said}");
    }
}

#[test]
fn another_network_and_a_missing_executable_are_named() {
    let said = tool("host-local").run(&["cluster", "show", "lan"]).shown();
    assert!(said.contains("no plugin of network lan has addresses of plugin cluster"), "{said}");
    let tool = tool("cluster");
    let said = tool.run(&["--cni-path", tool.path("none").to_str().unwrap(), "cluster", "show", "lan"]).shown();
    assert!(said.contains("Copy the executable cluster of a release there"), "{said}");
}

#[test]
fn validate_and_doctor_name_the_remedy_where_the_next_add_fails() {
    let tool = tool("cluster");
    let list = serde_json::json!({"cniVersion": "1.1.0", "name": "lan", "plugins": [{"type": "cluster", "ipam": {
        "type": "cluster", "subnet": "10.1.0.0/30", "dataDir": tool.path("data"), "store": {"path": "/none"}}}]});
    tool.write("net.d/lan.conflist", &list.to_string());
    let bin = tool.path("bin");
    let validate = || tool.run(&["--cni-path", bin.to_str().unwrap(), "validate", "lan"]).shown();
    assert!(!validate().contains("adopt"));
    // host-local's: the store has never recorded the node.
    tool.write("data/lan/10.1.0.2", "c1\r\neth0");
    for said in [validate(), tool.run(&["doctor"]).shown()] {
        assert!(said.contains("this node holds 1 addresses that were given without the store"), "{said}");
        assert!(
            said.contains("Once: cnitool cluster adopt lan --begin; on each node: cnitool cluster adopt lan"),
            "{said}"
        );
    }
    tool.write("data/lan/cluster/view", r#"{"left":0,"isRecorded":true,"runs":[["10.1.0.2","10.1.0.2"]]}"#);
    let said = validate();
    assert!(said.contains("are held, and none is in no run") && said.contains("cnitool cluster show lan"), "{said}");
    assert!(!said.contains("adopt"), "{said}");
}

#[test]
fn metrics_have_the_nodes_runs_and_what_is_in_none() {
    let tool = tool("cluster");
    let dir = tool.path("data");
    let list = serde_json::json!({"cniVersion": "1.1.0", "name": "lan", "plugins": [{"type": "macvlan", "ipam": {
        "type": "cluster", "subnet": "10.1.0.0/24", "dataDir": dir, "store": {"path": "/none"}}}]});
    tool.write("net.d/lan.conflist", &list.to_string());
    let without_view = tool.run(&["metrics"]).shown();
    assert!(without_view.contains("cni_attachments{") && !without_view.contains("cni_addresses_in_no_run"));
    let view = r#"{"left":3,"runs":[["10.1.0.2","10.1.0.5"]],"claims":{"db":["10.1.0.9"]},
        "awayUntilMs":5,"awayWhy":"etcd is not available","readAtS":7,"trustSeconds":60}"#;
    tool.write("data/lan/cluster/view", view);
    for address in ["10.1.0.3", "10.1.0.9", "10.1.0.77"] {
        tool.write(&format!("data/lan/{address}"), "c1\r\neth0");
    }
    assert!(
        tool.run(&["doctor"]).stdout.contains("the store was away when a call asked it last: etcd is not available")
    );
    let page = tool.run(&["metrics"]).shown();
    for line in [
        r#"cni_range_addresses_used{network="lan",range="10.1.0.2-10.1.0.5",set="0"} 1"#,
        r#"cni_range_addresses_free{network="lan",range="10.1.0.2-10.1.0.5",set="0"} 3"#,
        r#"cni_range_addresses_used{network="lan",range="10.1.0.9-10.1.0.9",set="0"} 1"#,
        r#"cni_addresses_in_no_run{network="lan"} 1"#,
        r#"cni_cluster_runs{network="lan"} 1"#,
        r#"cni_cluster_addresses_left{network="lan"} 3"#,
        r#"cni_cluster_claims{network="lan"} 1"#,
        r#"cni_cluster_store_away{network="lan"} 1"#,
        r#"cni_cluster_view_timestamp_seconds{network="lan"} 7"#,
    ] {
        assert!(page.contains(line), "{page}");
    }
    for damaged in ["", "[]", r#"{"runs":[[],["x",7]],"claims":[1]}"#] {
        tool.write("data/lan/cluster/view", damaged);
        assert!(tool.run(&["metrics"]).shown().starts_with("0\n"), "{damaged}");
    }
}
