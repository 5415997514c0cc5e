//! The plugins' records in the log of calls, as any runtime gets them: `libcni/call-log/README.md`.

use crate::prelude::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use testns::Reply;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const NODE_FILE: &str = "/etc/cni/log";

fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of(records: &[Value], key: &str) -> Vec<String> {
    records.iter().map(|record| record[key].as_str().unwrap_or("-").to_owned()).collect()
}

fn file(node: &Node) -> PathBuf {
    node.work_dir().join("calls.log")
}

/// The steps that a record names, without their times.
fn steps(record: &Value) -> Vec<&str> {
    let lines = record["CNI_STEPS"].as_str().unwrap_or_default().lines();
    lines.map(|line| line.split_once(' ').unwrap().1).collect()
}

fn with_log(log: &Value) -> Value {
    bridge(json!({"log": log}))
}

/// The node's file is all that a runtime such as containerd needs: it gives plugins no variable and no key.
#[test]
fn the_nodes_file_asks_for_a_record_of_each_call() {
    let node = node();
    let (pod, path) = (node.container_named("c1"), file(&node));
    std::fs::write(NODE_FILE, format!("{}\n", path.display())).unwrap();
    let config = bridge(json!({"isGateway": true, "ipMasq": true, "macspoofchk": true}));
    let attached = Attached::add(&node, &config, &pod);
    attached.check_and_del();
    node.call(Verb::Version, &config, &pod).ok();
    let refused = with_mtu(&config);
    let failure = node.call(Verb::Add, &refused, &pod).fails();
    let records = records(&path);
    assert_eq!(of(&records, "CNI_VERB"), ["ADD", "CHECK", "DEL", "ADD"]);
    assert_eq!(of(&records, "CNI_RESULT"), ["ok", "ok", "ok", "error"]);
    assert_eq!(of(&records, "CNI_ADDRESSES"), ["10.7.0.2/24", "-", "-", "-"]);
    assert_eq!(of(&records, "CNI_ERROR_CODE"), ["-", "-", "-", "7"]);
    assert_eq!(records[3]["CNI_ERROR"], failure.msg);
    for record in &records {
        let names = ["CNI_BY", "CNI_NETWORK", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_PLUGIN"].map(|key| &record[key]);
        assert_eq!(names, ["plugin", "net", "c1", "eth0", "bridge"]);
        assert!(record["CNI_DURATION_US"].as_str().unwrap().parse::<u64>().unwrap() > 0);
        assert!(record.get("CNI_WITHIN_US").is_none());
    }
    assert_eq!(records[0]["MESSAGE"], "ADD of bridge: eth0 of c1 in net: 10.7.0.2/24");
    let add = steps(&records[0]);
    for step in
        ["look", "ADD of host-local", "ensure bridge", "create veth", "set up the container's side", "add masquerade"]
    {
        assert!(add.contains(&step), "{step} is not in {add:?}");
    }
    assert_eq!(steps(&records[1]), ["CHECK of host-local"]);
    assert_eq!(steps(&records[2]), ["remove masquerade", "remove link", "remove spoof guard", "DEL of host-local"]);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

fn with_mtu(config: &Value) -> Value {
    let mut config = config.clone();
    config["mtu"] = json!(-1);
    config
}

/// A datagram for each call, in the journal's native form; a journal that does not read, or is not there, stops no call.
#[test]
fn the_journal_gets_a_datagram_and_is_not_waited_for() {
    let node = node();
    let pod = node.container_named("c1");
    let call = |verb| Call::new(verb, bridge(json!({})), &pod).variable("CNI_LOG", "journal").run(&node);
    let silent = |reply: Reply| {
        reply.ok();
        assert_eq!(reply.output.stderr, "");
    };
    silent(call(Verb::Add));
    silent(call(Verb::Del));
    let socket = Path::new("/run/systemd/journal/socket");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let journal = UnixDatagram::bind(socket).unwrap();
    journal.set_nonblocking(true).unwrap();
    silent(call(Verb::Add));
    let mut bytes = vec![0; 64 << 10];
    let count = journal.recv(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
    for line in [
        "MESSAGE=ADD of bridge: eth0 of c1 in net: 10.7.0.3/24\n",
        "\nPRIORITY=6\n",
        "\nSYSLOG_IDENTIFIER=cni\n",
        "\nCNI_BY=plugin\n",
        "\nCNI_VERB=ADD\n",
        "\nCNI_PLUGIN=bridge\n",
        "\nCNI_STEPS\n",
        " create veth\n",
        "\nCNI_RESULT=ok\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text:?}");
    }
    assert!(journal.recv(&mut bytes).is_err(), "one datagram");
    // Until its queue is full: then the record is dropped.
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"x", socket).is_ok() {}
    silent(call(Verb::Del));
    let queued = std::iter::from_fn(|| journal.recv(&mut bytes).ok()).filter(|count| *count > 1).count();
    assert_eq!(queued, 0);
}

/// A network may ask for a record, but names no file, and does not overrule the node or the runtime.
#[test]
fn the_networks_key_comes_last_and_names_no_file() {
    let node = node();
    let (pod, path) = (node.container(), file(&node));
    let stderr = |config: &Value, variable: &str| {
        let reply = Call::new(Verb::Add, config, &pod).variable("CNI_LOG", variable).run(&node);
        reply.ok();
        node.call(Verb::Del, bridge(json!({})), &pod).ok();
        reply.output.stderr
    };
    let record: Value = serde_json::from_str(&stderr(&with_log(&json!("stderr")), "warn")).unwrap();
    assert_eq!(record["CNI_PLUGIN"], "bridge");
    assert_eq!(stderr(&with_log(&json!("stderr")), "off"), "");
    assert_eq!(stderr(&with_log(&json!(5)), "warn"), "");
    assert!(stderr(&with_log(&json!(path)), "warn").contains("key log: it is ignored"));
    assert!(!path.exists());
    std::fs::write(NODE_FILE, "off").unwrap();
    assert_eq!(stderr(&with_log(&json!("stderr")), "warn"), "");
    // The runtime's variable counts before both, and has a level beside.
    let log = format!("debug,{}", path.display());
    let said = stderr(&with_log(&json!("stderr")), &log);
    assert!(said.contains("DEBUG") && !said.contains("CNI_PLUGIN"), "{said}");
    assert_eq!(of(&records(&path), "CNI_VERB"), ["ADD"]);
}

/// Nothing about the log makes a call fail, and nothing that another user could place is opened.
#[test]
fn a_log_that_another_user_could_place_is_refused_and_stops_no_call() {
    let (node, pod) = node_with_pod();
    let chmod = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let says = || {
        let reply = node.call(Verb::Add, bridge(json!({})), &pod);
        reply.ok();
        node.call(Verb::Del, bridge(json!({})), &pod).ok();
        reply.output.stderr
    };
    let target = node.work_dir().join("target");
    std::fs::write(&target, "").unwrap();
    symlink(node.work_dir(), node.work_dir().join("here")).unwrap();
    std::fs::write(NODE_FILE, node.work_dir().join("here/log").display().to_string()).unwrap();
    let said = says();
    assert!(said.contains("a part of its path is a symbolic link"), "{said}");
    std::fs::write(NODE_FILE, target.display().to_string()).unwrap();
    chmod(Path::new(NODE_FILE), 0o666);
    assert!(says().contains("it is ignored, as it can be written to by others"));
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "");
}

/// An operation of cnitool is one call in the log: the records of its plugins name its record as that which they are part of.
#[test]
fn a_plugins_record_is_part_of_the_operations() {
    let node = node();
    let (pod, path) = (node.container(), file(&node));
    std::fs::create_dir_all("/etc/cni/net.d").unwrap();
    let mut plugin = bridge(json!({}));
    plugin.as_object_mut().unwrap().retain(|key, _| key != "name" && key != "cniVersion");
    let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [plugin, {"type": "tuning"}]});
    std::fs::write("/etc/cni/net.d/net.conflist", list.to_string()).unwrap();
    std::fs::write(NODE_FILE, path.display().to_string()).unwrap();
    let cnitool = |words: &[&str]| {
        let mut command = Command::new(testns::cnitool());
        command.args(words).env_clear().env("CNI_PATH", node.bin_dir()).env("TRACEPARENT", TRACE);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    cnitool(&["add", "net", &pod.namespace().path().display().to_string()]);
    let found = records(&path);
    assert_eq!(of(&found, "CNI_PLUGIN"), ["bridge", "tuning", "-"]);
    assert_eq!(of(&found, "TRACEPARENT"), [TRACE; 3]);
    let whole = found[2]["CNI_BEGIN_US"].as_str().unwrap().to_owned();
    assert_eq!(of(&found, "CNI_WITHIN_US"), [&whole, &whole, "-"]);
    let shown = cnitool(&["log"]);
    let plugins: Vec<&str> = shown.lines().map(|line| line[26..].split("net ").next().unwrap().trim_end()).collect();
    assert_eq!(plugins[1..], ["ADD   (runtime)", "ADD     bridge", "ADD     tuning"], "{shown}");
    assert_eq!(cnitool(&["log", "-n", "1"]), shown);
}

/// Each chained plugin says what took how long; GC does, too.
#[test]
fn chained_plugins_and_gc_name_their_steps() {
    let node = node();
    let (pod, path) = (node.container_named("c1"), file(&node));
    std::fs::write(NODE_FILE, format!("{}\n", path.display())).unwrap();
    let config = bridge(json!({"isGateway": true}));
    let result = node.call(Verb::Add, &config, &pod).ok();
    let limits = json!({"ingressRate": 800_000, "ingressBurst": 80_000, "egressRate": 800_000, "egressBurst": 80_000});
    let ports =
        json!({"runtimeConfig": {"portMappings": [{"hostPort": 8083, "containerPort": 80, "protocol": "tcp"}]}});
    for (plugin, keys, add, del) in [
        ("portmap", ports, &["forward ports"][..], &["remove rules"][..]),
        ("firewall", json!({}), &["accept packets"], &["remove rules"]),
        ("bandwidth", limits, &["limit what it receives", "limit what it sends"], &["remove ifb"]),
        (
            "tuning",
            json!({"mtu": 1400, "sysctl": {"net.core.somaxconn": "500"}}),
            &["set interface", "write sysctls"],
            &[],
        ),
        ("sbr", json!({}), &["fill table"], &[]),
    ] {
        let mut own = json!({"cniVersion": "1.0.0", "name": "net", "type": plugin});
        own.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        for (verb, wanted) in [(Verb::Add, add), (Verb::Del, del)] {
            Call::new(verb, &own, &pod).plugin(plugin).prev_result(&result).run(&node).ok();
            let last = records(&path).pop().unwrap();
            assert_eq!(steps(&last), wanted, "{verb:?} of {plugin}");
        }
    }
    let mut gc = config;
    gc["cniVersion"] = json!("1.1.0");
    gc["cni.dev/valid-attachments"] = json!([]);
    node.call(Verb::Gc, &gc, &pod).ok();
    let last = records(&path).pop().unwrap();
    assert_eq!(steps(&last), ["collect rules", "collect links", "GC of host-local"]);
}
