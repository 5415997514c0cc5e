//! The time of a call beside host-local's, in turns, as the machine's load changes; and of calls that claim.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testns::{Etcd, Node};

use crate::test_cluster::TestCluster;

const ROUNDS: usize = 300;

fn environment(verb: &str, container: &str) -> Vec<(String, String)> {
    let all = [
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", container),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/var/run/netns/none"),
        ("CNI_PATH", "/opt/cni/bin"),
    ];
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

fn call(executable: &Path, verb: &str, container: &str, config: &Path) -> Duration {
    let mut command = Command::new(executable);
    command.arg0(config.file_stem().unwrap()).env_clear().envs(environment(verb, container));
    command.stdin(fs::File::open(config).unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    assert!(command.status().unwrap().success(), "{verb} with {}", config.display());
    begin.elapsed()
}

fn median(mut taken: Vec<Duration>) -> String {
    taken.sort();
    let (middle, late) = (taken[taken.len() / 2], taken[taken.len() * 99 / 100]);
    format!("{:.2} ms, of 100 the slowest {:.2} ms", middle.as_secs_f64() * 1e3, late.as_secs_f64() * 1e3)
}

fn lay(nodes: &TestCluster, name: &str, config: &Value) -> PathBuf {
    let path = nodes.folder.path().join(format!("{name}.json"));
    fs::write(&path, config.to_string()).unwrap();
    path
}

#[test]
#[ignore = "a measurement, not a check"]
#[expect(clippy::print_stdout, reason = "the figures are read by a person")]
fn beside_host_local() {
    let mut nodes = TestCluster::new(json!({ "subnet": "10.9.0.0/16" }));
    let node = Node::new();
    let folder = testns::plugins().parent().unwrap();
    let cluster = nodes.machine("n1").config();
    let mut host_local = cluster.clone();
    let ipam = host_local["ipam"].as_object_mut().unwrap();
    ipam.retain(|key, _| key != "store" && key != "node");
    ipam.extend([
        ("type".to_owned(), json!("host-local")),
        ("dataDir".to_owned(), json!(nodes.folder.path().join("hl"))),
    ]);
    // Called by the name of the plugin, as a link or a copy is.
    let multicall = node.bin_dir().join("host-local");
    std::os::unix::fs::symlink(folder.join("cni-plugins"), &multicall).unwrap();
    let plugins = [
        (multicall, lay(&nodes, "host-local", &host_local)),
        (folder.join("cluster"), lay(&nodes, "cluster", &cluster)),
    ];
    let mut taken: [[Vec<Duration>; 3]; 2] = Default::default();
    for _ in 0..ROUNDS {
        for ((executable, config), taken) in plugins.iter().zip(&mut taken) {
            for (verb, taken) in ["ADD", "CHECK", "DEL"].into_iter().zip(taken) {
                taken.push(call(executable, verb, "web", config));
            }
        }
    }
    for ((executable, config), taken) in plugins.iter().zip(taken) {
        let name = config.file_stem().unwrap().display();
        for (verb, taken) in ["ADD", "CHECK", "DEL"].into_iter().zip(taken) {
            println!("{name} {verb}: {}", median(taken));
        }
        println!("{name}: {} KiB", fs::metadata(executable).unwrap().len() / 1024);
    }
    let executable = &plugins[1].0;
    println!("load: {}", fs::read_to_string("/proc/loadavg").unwrap().trim_end());
    println!("claim in a folder: {}", claims(&nodes, executable, "folder"));
    match Etcd::start(nodes.folder.path(), "127.0.0.1") {
        Err(why) => println!("claim in etcd: {why}"),
        Ok(etcd) => {
            nodes.keys["store"] = etcd.store();
            assert!(etcd.is_ready("/cni/net/"));
            println!("claim in etcd: {}", claims(&nodes, executable, "etcd"));
        }
    }
}

/// The time of ADDs each of which claims, as a run is one address.
fn claims(nodes: &TestCluster, executable: &Path, name: &str) -> String {
    let mut config = nodes.machine(name).config();
    (config["name"], config["ipam"]["claimSize"]) = (json!(format!("claims-{name}")), json!(1));
    let path = lay(nodes, name, &config);
    assert!(Command::new(executable).arg("init").arg(&path).status().unwrap().success());
    let taken = (0..100).map(|number| call(executable, "ADD", &format!("c{number}"), &path)).collect();
    median(taken)
}
