//! The tour of cnitool's README: its commands, and what they print.

use super::Tour;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugins/cnitool/README.md");

/// Runs each command of the console blocks in turn. `UPDATE_EXPECT=1` writes what they print into the page.
#[test]
fn the_tour_of_the_readme_prints_what_the_page_shows() {
    let tour = Tour::with_plugins();
    let (host, outside) = (tour.node.host(), tour.node.remote("outside"));
    host.add_veth("ens3", &outside, "eth0");
    [(host, "ens3"), (&outside, "eth0")].iter().for_each(|(place, link)| place.set_up(link));
    host.add_address("ens3", "192.168.1.7/24");
    host.add_route("0.0.0.0/0", "192.168.1.1", "ens3");
    fs::remove_file("/etc/cni/net.d/10-office.conflist").unwrap();
    // The log is the node's, not the machine's.
    assert!(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/var/log"]).status().unwrap().success());
    let page = fs::read_to_string(README).unwrap();
    let (before, from_tour) = page.split_once("## A tour").unwrap();
    let (session, after) = from_tour.split_once("\n## ").unwrap();
    let mut written = String::new();
    let mut exports = String::new();
    let mut wrong = Vec::new();
    for (place, part) in session.split("```").enumerate() {
        let Some(block) = part.strip_prefix("console\n").filter(|_| place % 2 == 1) else {
            written += &format!("{}{part}", if place == 0 { "" } else { "```" });
            continue;
        };
        written += "```console\n";
        for entry in format!("\n{block}").split("\n# ").skip(1) {
            let (command, shown) = entry.split_once('\n').unwrap_or((entry, ""));
            let printed = tour.typed(&mut exports, command, shown);
            if words(&printed) != words(shown) {
                wrong.push(format!("# {command}\n--- the page shows\n{shown}\n--- printed\n{printed}"));
            }
            written += &format!("# {command}\n{printed}");
        }
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(README, format!("{before}## A tour{written}\n## {after}")).unwrap();
        return;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

impl Tour {
    /// What a command prints. `cat` of a file that is not there makes it as the page shows it.
    fn typed(&self, exports: &mut String, command: &str, shown: &str) -> String {
        if command.starts_with("export ") {
            *exports += &format!("{command}\n");
            return String::new();
        }
        if let Some(file) = command.strip_prefix("cat ") {
            fs::write(self.node.work_dir().join(file), shown.trim_end().to_owned() + "\n").unwrap();
        }
        if command == "cnitool doctor" {
            // The kernel removes the links of a deleted namespace after `ip netns del` has ended.
            let is_veth = |link: &testns::Link| link.name.starts_with("veth");
            self.node.host().wait_for("the end of the container's links", |host| !host.links().iter().any(is_veth));
            make_old();
        }
        let script = format!("exec 2>&1\n{exports}{command}");
        // cnitool as in `Tour::run`; what mounts, where it lasts.
        let processes = self.processes.as_ref().filter(|_| command.starts_with("cnitool "));
        let mut sh = processes.map_or_else(|| Command::new("env"), testns::PidNamespace::command);
        sh.args(["sh", "-c", &script]);
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.bin_dir.display());
        sh.current_dir(self.node.work_dir()).env_clear().env("PATH", path).env("CNI_PATH", &self.bin_dir);
        let printed = String::from_utf8(sh.output().unwrap().stdout).unwrap();
        let end = if printed.is_empty() || printed.ends_with('\n') { "" } else { "\n" };
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let printed = match printed.strip_prefix(host.trim_end()).filter(|_| command == "cnitool show") {
            Some(rest) => format!("node-1{rest}"),
            None => printed,
        };
        (printed + end).replace(&self.bin_dir.display().to_string(), "/opt/cni/bin")
    }
}

/// What the page says happened an hour ago.
fn make_old() {
    for folder in ["/var/lib/cni/networks/office", "/var/lib/cni/results"] {
        for entry in fs::read_dir(Path::new(folder)).into_iter().flatten() {
            let file = fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        }
    }
}

/// Lines as words, without times, ages and durations, which are others each time.
fn words(text: &str) -> Vec<String> {
    let is_age = |word: &str| word.strip_suffix(['s', 'm', 'h']).is_some_and(|age| age.parse::<u32>().is_ok());
    let is_time = |word: &str| word.len() >= 20 && word.starts_with("20") && word.ends_with('Z');
    let is_duration = |word: &str| word.contains('.') && word.parse::<f64>().is_ok();
    let kept = |word: &&str| !(is_age(word) || is_time(word) || is_duration(word));
    let line = |line: &str| line.split_whitespace().filter(kept).collect::<Vec<_>>().join(" ");
    text.trim_end().lines().map(line).collect()
}
