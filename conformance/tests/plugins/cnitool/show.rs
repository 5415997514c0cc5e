//! `cnitool show` on a prepared node: attachments of this suite, of another runtime and of the reference, and what belongs to
//! nothing.

use super::{PORT, Tour, netns};
use crate::prelude::*;
use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};
use testns::Subject;

/// A node with the plugins, and the network with forwarded ports and limits.
pub(super) fn installed() -> Tour {
    let tour = Tour::with_plugins();
    let network = json!({"cniVersion": "1.1.0", "name": "office", "plugins": [
        {"type": "bridge", "isDefaultGateway": true, "ipMasq": true,
         "ipam": {"type": "host-local", "subnet": format!("{}.0/28", tour.subnet)}},
        {"type": "portmap", "capabilities": {"portMappings": true}},
        {"type": "bandwidth", "capabilities": {"bandwidth": true}}]});
    fs::write("/etc/cni/net.d/10-office.conflist", network.to_string()).unwrap();
    tour
}

impl Tour {
    pub(super) fn add(&self, name: &str, pod: &Container, more: &[&str]) {
        self.cnitool(&[&["add", "office", &netns(pod), "--container-id", name][..], more].concat());
    }

    fn show(&self, words: &[&str]) -> String {
        self.stable(&self.cnitool(&[&["show"], words].concat()))
    }

    fn shown(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.cnitool(&[&["show", "--json"], words].concat())).unwrap()
    }

    /// The text with the addresses of a node that is alone, and without ages, which depend on the machine's speed.
    pub(super) fn stable(&self, text: &str) -> String {
        let is_age = |word: &&str| word.strip_suffix('s').is_some_and(|age| age.parse::<u64>().is_ok());
        let line = |line: &str| {
            let parts: Vec<&str> = line.split("  ").filter(|part| !is_age(part)).collect();
            parts.join("  ").replace(&self.subnet, "10.7.0") + "\n"
        };
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        text.lines().map(line).collect::<String>().replacen(host.trim_end(), "NODE", 1)
    }
}

#[test]
fn a_node_is_shown_with_all_that_its_networks_have() {
    let tour = installed();
    let [web, other, gone] = ["web", "other", "gone"].map(|name| (name, tour.node.container()));
    let mapped = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": 1_000_000, "ingressBurst": 80_000, "egressRate": 2_000_000, "egressBurst": 80_000}});
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=u-1";
    tour.add(web.0, &web.1, &["--cap-args", &mapped.to_string(), "--args", args]);
    tour.add(other.0, &other.1, &["--cache-dir", "/run/other"]);
    tour.add(gone.0, &gone.1, &[]);
    let at_gone = netns(&gone.1);
    tour.lose(&gone.1);
    tour.cnitool(&["ipam", "reserve", "office", &tour.address(9)]);
    let store = "/var/lib/cni/networks/old";
    fs::create_dir_all(store).unwrap();
    fs::create_dir_all("/var/lib/cni/networks/empty").unwrap();
    fs::write(format!("{store}/{}", tour.address(200)), "lost\r\neth0").unwrap();
    let reservation = format!("/var/lib/cni/networks/office/{}", tour.address(4));
    let two_hours_ago = SystemTime::now() - Duration::from_secs(7300);
    fs::File::options().write(true).open(reservation).unwrap().set_modified(two_hours_ago).unwrap();
    fs::write("/var/lib/cni/results/broken", "{").unwrap();
    fs::write("/etc/cni/net.d/20-bad.conflist", "\u{1b}[2J").unwrap();
    let shown = tour.show(&[]).replace(&netns(&web.1), "WEB").replace(&at_gone, "GONE");
    expect![[r#"
        NODE  2 networks, 4 attachments  2 live  1 young  1 gone
        office  bridge, portmap, bandwidth  /etc/cni/net.d/10-office.conflist (default
        network: first by name)
        ├─ bridge cni0  up  10.7.0.1/28, mtu 1500, 2 ports
        ├─ 10.7.0.1 - 10.7.0.14  ██████░░░░░░░░░░░░░░  4 used, 9 free
        ├─ 10.7.0.9 reserved by hand
        ├─ gone  eth0  10.7.0.4  gone  2h
        │  ├─ namespace GONE
        │  ├─ iptables masquerade of 10.7.0.4
        │  └─ its interface was not found, so its maker is unknown
        ├─ other       eth0  10.7.0.3  lives  another runtime's
        └─ shop/web-0  eth0  10.7.0.2  lives  8080/tcp to 80  1 Mbit/s in  2
             Mbit/s out
        old  plugins unknown  no file and not in the cache; known from what it left
        └─ lost  eth0  10.7.0.200  young  another runtime's
        could not be looked at
        ├─ /var/lib/cni/results/broken ignored: EOF while parsing an object at line 1
        │    column 1
        └─ /etc/cni/net.d/20-bad.conflist: cannot parse network config: expected value
             at line 1 column 1
    "#]]
    .assert_eq(&shown);
    assert!(!shown.contains('\u{1b}'));
    let brief = tour.show(&["--brief", "--network", "office"]);
    assert!(brief.contains("─ gone  eth0  10.7.0.4  gone  2h\n") && brief.contains("─ 2 without a fault\n"), "{brief}");
    let gone = tour.show(&["--state", "gone", "office"]);
    assert!(gone.starts_with("NODE  1 network, 1 attachment  1 gone\n") && !gone.contains("web-0"), "{gone}");
    let shown = tour.shown(&["office"]);
    let web = &shown["networks"][0]["attachments"][2];
    let port =
        json!([{"protocol": "tcp", "hostAddress": null, "hostPort": 8080, "containerPort": 80, "conditional": false}]);
    assert_eq!((&web["container"], &web["ports"], &web["life"]), (&json!("web"), &port, &json!("lives")), "{web}");
    let pod = json!({"namespace": "shop", "name": "web-0", "uid": "u-1"});
    assert_eq!((&web["name"], &web["pod"]), (&json!("shop/web-0"), &pod), "{web}");
    assert_eq!((&web["toBitsPerSecond"], &web["fromBitsPerSecond"]), (&json!(1_000_000), &json!(2_000_000)), "{web}");
    assert_eq!((&web["maker"], &web["complete"]), (&json!("this-suite"), &json!(true)));
    let range = &shown["networks"][0]["ranges"][0];
    assert_eq!((&range["total"], &range["used"], &range["free"]), (&json!(13), &json!(4), &json!(9)), "{range}");
    // Only the one that was asked for.
    assert_eq!((&shown["networks"][1], &shown["unowned"]), (&Value::Null, &json!([])));
    let absent = tour.call(&["show", "absent"]);
    assert_eq!((absent.status.code(), absent.stdout.as_slice()), (Some(1), &b""[..]));
}

/// A fault of one attachment comes below it, a fault of many below their network.
#[test]
fn what_doctor_calls_an_error_is_shown() {
    let tour = installed();
    let names = ["a", "b", "c", "d"];
    let pods: Vec<_> = names.iter().map(|name| (*name, tour.node.container())).collect();
    pods.iter().for_each(|(name, pod)| tour.add(name, pod, &[]));
    tour.node.settle(Duration::from_secs(60));
    let well = tour.show(&["--brief"]);
    assert!(well.contains("4 live\n") && well.contains("4 without a fault\n"), "{well}");
    let host = tour.node.host();
    let veth = |name: &str| {
        let mark = format!("cni:office/{name}/eth0");
        host.links().into_iter().find(|link| link.alias.as_deref() == Some(&*mark)).unwrap().name
    };
    let off = veth("b");
    host.clear_master(&off);
    let one = tour.show(&["--state", "sick"]);
    assert!(one.contains(&format!("link {off} is no port of bridge cni0")), "{one}");
    assert!(one.contains("1 with a fault\n"), "{one}");
    host.set_down("cni0");
    let all = tour.show(&["--brief"]);
    assert!(all.contains("cni0 is down: 4 attachments") && all.contains("1 network with a fault"), "{all}");
    assert!(all.contains("3 without a fault of their own"), "{all}");
}

/// Rules and namespaces that cannot be read are no lost ones.
#[test]
fn without_capabilities_nothing_is_said_to_be_lost_that_could_not_be_read() {
    let tour = installed();
    let web = tour.node.container();
    tour.add("web", &web, &["--cap-args", PORT]);
    let cnitool = tour.bin_dir.join("cnitool").display().to_string();
    for (verb, says) in [("show", "could not be looked at"), ("doctor", "cannot look at")] {
        let words = ["--bounding-set", "-all", "--inh-caps", "-all", &cnitool, verb];
        let output = tour.run(std::path::Path::new("/usr/bin/setpriv"), &words);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(says) && text.contains("forwarded ports"), "{text}");
        for lost in ["masquerade", "does not lead to", "no rule forwards", "no known network", "with a fault"] {
            let is_lost = |line: &str| line.contains(lost) && !line.contains("cni_plugins_masquerade");
            assert!(!text.lines().any(is_lost), "{lost}: {text}");
        }
    }
}

#[test]
fn attachments_of_the_reference_are_shown_with_their_links() {
    let Some(Subject::Folder(reference)) = reference_or_skip() else { return };
    let tour = installed();
    let network = json!({"cniVersion": "1.0.0", "name": "office", "plugins": [
        {"type": "bridge", "bridge": "br9", "isGateway": true,
         "ipam": {"type": "host-local", "subnet": format!("{}.0/28", tour.subnet)}}]});
    fs::write("/etc/cni/net.d/10-office.conflist", network.to_string()).unwrap();
    let pod = tour.node.container();
    tour.add("web", &pod, &["--cni-path", &reference.display().to_string()]);
    // The network's file is gone: the cache has its configuration.
    fs::remove_file("/etc/cni/net.d/10-office.conflist").unwrap();
    let shown = tour.shown(&[]);
    let network = &shown["networks"][0];
    assert_eq!((&network["knownFrom"], &network["links"][0]["name"]), (&json!("cache"), &json!("br9")), "{network}");
    let web = &network["attachments"][0];
    assert_eq!((&web["maker"], &web["life"]), (&json!("reference-or-other"), &json!("lives")), "{web}");
    assert_eq!((&web["addresses"], &web["links"][0]["master"]), (&json!([tour.address(2)]), &json!("br9")), "{web}");
}

/// The lines that come up to one that has the words.
fn until(lines: &mut impl Iterator<Item = std::io::Result<String>>, words: &str) -> String {
    let mut seen = String::new();
    for line in lines {
        seen += &(line.unwrap() + "\n");
        if seen.contains(words) {
            return seen;
        }
    }
    panic!("it ended before {words}: {seen}");
}

#[test]
fn a_watched_node_is_shown_again_after_each_change() {
    let tour = installed();
    // Only what ran, and for how long: requests to the kernel are for -vv.
    let first = tour.node.container();
    let said = tour.call(&["-v", "add", "office", &netns(&first)]).stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(said.lines().all(|line| line.contains(": ok, ")) && said.lines().count() == 4, "{said}");
    tour.cnitool(&["del", "office", &netns(&first)]);
    let (web, address) = (tour.node.container(), format!("{}.3", tour.subnet));
    // A change that is not seen ends the output after a minute. The signal below is passed on.
    let mut command = Command::new("/usr/bin/timeout");
    command.args(["--signal=KILL", "60"]).arg(tour.bin_dir.join("cnitool"));
    let mut watching = command.args(["show", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    until(&mut lines, "0 used");
    // No link changes: only a file of the store.
    tour.cnitool(&["ipam", "reserve", "office", &format!("{}.9", tour.subnet)]);
    until(&mut lines, "reserved by hand");
    tour.add("web", &web, &[]);
    until(&mut lines, &format!("web  eth0  {address}  lives"));
    tour.cnitool(&["del", "office", &netns(&web), "--container-id", "web"]);
    until(&mut lines, "0 ports");
    kill(Pid::from_raw(watching.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(watching.wait().unwrap().code(), Some(130));
}
