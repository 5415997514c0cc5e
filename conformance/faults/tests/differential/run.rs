//! A run of a case: two pods from ADD to DEL, with the state of the node after each step.

use std::fmt;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use testns::{Call, Container, Namespace, Node, Reply, Verb};

use crate::case::Case;
use faults::subjects::{Who, by, is_the_kernels, node};

const DEADLINE: Duration = Duration::from_secs(60);

/// Devices that a node can give away: in use, each with an address and an MTU of its own.
const DEVICES: &[&str] = &[
    "sysctl -qw net.ipv6.conf.default.disable_ipv6=1",
    "for n in 1 2; do ip link add dev$n mtu 1450 address 0a:00:00:00:00:d$n type veth peer name dev$n-peer; done",
    "for n in 1 2; do ip address add 192.0.$n.9/24 dev dev$n; ip link set dev$n up; ip link set dev$n-peer up; done",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// When and where: `pod1 ADD`, `node after DEL`.
    pub(crate) place: &'static str,
    pub(crate) text: String,
    pub(crate) words: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {} {}", self.place, self.text, self.words)
    }
}

impl Line {
    pub(crate) fn sysctl(&self) -> Option<&str> {
        Some(self.text.strip_prefix("sysctl ")?.split_once(" = ")?.0)
    }

    pub(crate) fn fails(&self) -> bool {
        self.text.starts_with("fails with ")
    }
}

pub(crate) fn run(case: &Case, who: Who) -> Vec<Line> {
    let node = node();
    let pods = [node.container(), node.container()];
    if ["macvlan", "ipvlan", "vlan"].contains(&case.plugin()) {
        make_masters(node.host());
    }
    case.before().for_each(prepare);
    if case.plugin() == "host-device" {
        DEVICES.iter().copied().for_each(prepare);
    }
    let mut run = Run { node: &node, case, of_case: case.to_string().to_lowercase(), lines: Vec::new() };
    let [own, others] = &pods;
    let first = run.call("pod1 ADD", who, Verb::Add, own, None);
    let second = run.call("pod2 ADD", who, Verb::Add, others, None);
    run.look(["node after ADD", "pod1 after ADD", "pod2 after ADD"], &pods);
    // CHECK comes after an ADD that succeeded, DEL after any.
    if first.is_some() {
        run.call("pod1 CHECK", who, Verb::Check, own, first.as_ref());
    }
    if second.is_some() {
        run.call("pod2 CHECK by the other", who.other(), Verb::Check, others, second.as_ref());
    }
    let seen = |result: Option<Value>| result.filter(|_| !case.is_blind());
    run.call("pod2 DEL by the other", who.other(), Verb::Del, others, seen(second).as_ref());
    run.call("pod1 DEL", who, Verb::Del, own, seen(first).as_ref());
    run.look(["node after DEL", "pod1 after DEL", "pod2 after DEL"], &pods);
    run.lines
}

/// Masters that links can be on, `up0` and `up1`: one has the default route.
fn make_masters(host: &Namespace) {
    for master in ["up0", "up1"] {
        host.add_veth(master, host, &format!("{master}-peer"));
        host.set_sysctl(&format!("net/ipv6/conf/{master}/disable_ipv6"), "1");
    }
    host.add_address("up1", "198.51.100.9/24");
    host.add_route("0.0.0.0/0", "198.51.100.1", "up1");
}

fn prepare(command: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = testns::run(shell, b"", DEADLINE);
    assert!(output.code() == 0, "{command}: {}", output.stderr);
}

struct Run<'a> {
    node: &'a Node,
    case: &'a Case,
    /// The case as text, in lower case.
    of_case: String,
    lines: Vec<Line>,
}

impl Run<'_> {
    /// Makes a call, of a chain one for each plugin until one fails, and records the outcome. Returns the result if it
    /// succeeded.
    fn call(
        &mut self,
        place: &'static str,
        who: Who,
        verb: Verb,
        pod: &Container,
        prev: Option<&Value>,
    ) -> Option<Value> {
        let number = pod.id().trim_start_matches("pod");
        let mut steps = self.case.steps();
        if verb == Verb::Del {
            steps.reverse();
        }
        let mut prev = prev.cloned();
        let mut text = String::new();
        for (plugin, config) in steps {
            let config = config.to_string().replace("\"{pod as a number}\"", number).replace("{pod}", number);
            let call = Call::new(verb, config, pod).args(self.case.args()).deadline(DEADLINE);
            let call = by(who, self.node, plugin, call);
            let call = prev.as_ref().map_or(call.clone(), |prev| call.prev_result(prev));
            let reply = call.run(self.node);
            if reply.output.code() != 0 {
                let (text, words) = error_text(&reply);
                self.lines.push(Line { place, text, words: format!("{plugin}: {words}") });
                return None;
            }
            text = result_text(&reply, &self.of_case);
            if verb == Verb::Add {
                prev = Some(reply.ok());
            }
        }
        self.lines.push(Line { place, text, words: String::new() });
        Some(prev.unwrap_or_default())
    }

    fn look(&mut self, places: [&'static str; 3], pods: &[Container; 2]) {
        let snapshots = [self.node.snapshot(), pods[0].namespace().snapshot(), pods[1].namespace().snapshot()];
        for (place, snapshot) in places.into_iter().zip(snapshots) {
            for line in snapshot.lines().iter().filter(|line| !is_the_kernels(line)) {
                self.lines.push(Line { place, text: plain(line, &self.of_case), words: String::new() });
            }
        }
    }
}

fn result_text(reply: &Reply, of_case: &str) -> String {
    let mut result = reply.ok();
    // An empty value means the same as an absent one.
    if let Some(object) = result.as_object_mut() {
        object.retain(|key, value| key != "dns" || value.as_object().is_none_or(|dns| !dns.is_empty()));
    }
    plain(&result.to_string(), of_case)
}

fn error_text(reply: &Reply) -> (String, String) {
    // The reference may print a result before the error.
    let objects = serde_json::Deserializer::from_str(&reply.output.stdout).into_iter::<Value>();
    let last = objects.map_while(Result::ok).last().unwrap_or_default();
    let words = format!(
        "{}; {}",
        last["msg"].as_str().unwrap_or("no error object"),
        last["details"].as_str().unwrap_or_default()
    );
    (format!("fails with {}", last["code"]), words)
}

/// A text without values that change from one ADD to the next: hardware addresses except those of the case, and names
/// of host veths.
fn plain(text: &str, of_case: &str) -> String {
    // Hundreds of lines are sysctls, which have none of these.
    if ![":", "veth", "nft rule"].iter().any(|word| text.contains(word)) {
        return text.replace("\\x00", "");
    }
    // The placeholder has a fixed length, so it is padded.
    let text = without_guarded_mac(&text.replace("\\x00", ""));
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some(next) = rest.chars().next() {
        let length = match rest {
            _ if starts_with_mac(rest) && !of_case.contains(&rest[..17]) => {
                plain.push_str("MAC");
                17
            }
            _ if rest.starts_with("veth")
                && rest.len() >= 12
                && rest.as_bytes()[4..12].iter().all(u8::is_ascii_hexdigit) =>
            {
                plain.push_str("VETH");
                12
            }
            _ => {
                plain.push(next);
                next.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    plain
}

/// The rule of a spoof guard without the source address that it compares, which is written in bytes.
fn without_guarded_mac(text: &str) -> String {
    // The source address is six bytes at offset six of the link layer's header.
    const SOURCE: &str = "payload(1=00000001 2=00000000 3=00000006 4=00000006) cmp(1=00000001 2=00000000 3={1=";
    let parts = text.split_once(SOURCE).and_then(|(before, rest)| Some((before, rest.split_once("}) ")?.1)));
    parts.map_or_else(|| text.to_owned(), |(before, after)| format!("{before}{SOURCE}MAC}}) {after}"))
}

fn starts_with_mac(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 17
        && bytes[..17]
            .iter()
            .enumerate()
            .all(|(at, byte)| if at % 3 == 2 { *byte == b':' } else { byte.is_ascii_hexdigit() })
}
