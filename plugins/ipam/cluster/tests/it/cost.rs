//! The time of a call beside host-local's, in turns, as the machine's load changes.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::machine::Site;

const ROUNDS: usize = 300;

fn call(executable: &Path, verb: &str, config: &Path) -> Duration {
    let mut command = Command::new(executable);
    command.arg0(config.file_stem().unwrap()).env_clear().env("CNI_COMMAND", verb).env("CNI_CONTAINERID", "web");
    command.env("CNI_IFNAME", "eth0").env("CNI_NETNS", "/var/run/netns/none").env("CNI_PATH", "/opt/cni/bin");
    command.stdin(fs::File::open(config).unwrap()).stdout(Stdio::null());
    let begin = Instant::now();
    assert!(command.status().unwrap().success(), "{verb} with {}", config.display());
    begin.elapsed()
}

#[test]
#[ignore = "a measurement, not a check"]
#[expect(clippy::print_stdout, reason = "the figures are read by a person")]
fn beside_host_local() {
    let site = Site::new(json!({ "subnet": "10.9.0.0/16" }));
    let folder = testns::plugins().parent().unwrap();
    let lay = |name: &str, config: &Value| {
        let path = site.folder.path().join(format!("{name}.json"));
        fs::write(&path, config.to_string()).unwrap();
        path
    };
    let cluster = site.machine("n1").config();
    let mut host_local = cluster.clone();
    let ipam = host_local["ipam"].as_object_mut().unwrap();
    ipam.retain(|key, _| key != "store" && key != "node");
    ipam.extend([
        ("type".to_owned(), json!("host-local")),
        ("dataDir".to_owned(), json!(site.folder.path().join("hl"))),
    ]);
    let plugins = [
        (folder.join("cni-plugins"), lay("host-local", &host_local)),
        (folder.join("cluster"), lay("cluster", &cluster)),
    ];
    let mut taken: [[Vec<Duration>; 3]; 2] = Default::default();
    for _ in 0..ROUNDS {
        for ((executable, config), taken) in plugins.iter().zip(&mut taken) {
            for (verb, taken) in ["ADD", "CHECK", "DEL"].into_iter().zip(taken) {
                taken.push(call(executable, verb, config));
            }
        }
    }
    for (name, taken) in ["host-local", "cluster"].into_iter().zip(&mut taken) {
        for (verb, taken) in ["ADD", "CHECK", "DEL"].into_iter().zip(taken) {
            taken.sort();
            println!("{name} {verb}: median {:.2} ms of {ROUNDS}", taken[ROUNDS / 2].as_secs_f64() * 1e3);
        }
    }
}
