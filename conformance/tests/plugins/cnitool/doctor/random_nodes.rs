//! `cnitool doctor` on nodes with rules that a generator draws from nft's language: what real packets meet, sent from outside of doctor,
//! is what doctor says, in both directions.

use super::lost_packets::{Sick, sh};
use super::{ERROR, WARNING};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;
use testns::{Container, Namespace, Random};

/// Nodes that the test draws; `DOCTOR_SEEDS=FIRST..END` draws others.
const SEEDS: std::ops::Range<u64> = 0..20;
/// No way of a healthy node takes as long.
const WITHIN: Duration = Duration::from_millis(400);

/// Draws a ruleset, in nft's words. `A` begins the addresses of the network.
struct Draw(Random);

impl Draw {
    fn pick(&mut self, words: &str) -> String {
        let words: Vec<&str> = words.split('|').map(str::trim).collect();
        (*self.0.pick(&words)).to_owned()
    }

    fn any_of(&mut self, words: &str) -> String {
        let words: Vec<&str> = words.split('|').map(str::trim).collect();
        let count = 1 + self.0.below(words.len());
        let mut taken: Vec<&str> = (0..count).map(|_| *self.0.pick(&words)).collect();
        taken.sort_unstable();
        taken.dedup();
        format!("{{ {} }}", taken.join(", "))
    }

    fn is(&mut self) -> &'static str {
        if self.0.once_in(4) { "!= " } else { "" }
    }

    fn ruleset(&mut self) -> String {
        let family = self.pick("inet|inet|inet|ip|ip|ip6|bridge|netdev|arp");
        let mut text = format!("table {family} drawn {{\n");
        text += "set nets { type ipv4_addr; flags interval; elements = { A.0/28, 203.0.113.0/24 }; }\n";
        text += "set ports { type inet_service; flags interval; elements = { 53, 80, 1000-2000 }; }\n";
        text += "set seen { type ipv4_addr; flags dynamic, timeout; timeout 1m; size 64; }\n";
        text += &format!(
            "map ways {{ type ifname : verdict; elements = {{ {} : {}, lxc0 : drop }}; }}\n",
            self.link(),
            self.end()
        );
        let called = self.0.below(3);
        for number in (0..called).rev() {
            let next: Vec<String> = (number + 1..called).map(|number| format!("called{number}")).collect();
            text += &format!("chain called{number} {{ {} }}\n", self.rules(&family, &next));
        }
        let next: Vec<String> = (0..called).map(|number| format!("called{number}")).collect();
        for number in 0..=self.0.below(2) {
            text += &format!("chain base{number} {{ {} {} }}\n", self.base(&family), self.rules(&family, &next));
        }
        text + "}\n"
    }

    fn base(&mut self, family: &str) -> String {
        let priority = self.pick("-310|-290|-160|-10|0|10|60|150|299");
        let hook = match family {
            "netdev" => {
                let link = self.pick("cni0|ens3");
                return format!(
                    "type filter hook {} device {link} priority {priority}; {}",
                    self.pick("ingress|egress"),
                    self.policy()
                );
            }
            "arp" => self.pick("input|output"),
            _ => self.pick("prerouting|input|forward|forward|forward|output|postrouting"),
        };
        format!("type filter hook {hook} priority {priority}; {}", self.policy())
    }

    fn policy(&mut self) -> String {
        self.pick("policy accept;|policy accept;|policy accept;|policy drop;")
    }

    fn rules(&mut self, family: &str, next: &[String]) -> String {
        let rule = |draw: &mut Self| {
            let mut words: Vec<String> = (0..draw.0.below(3)).map(|_| draw.condition(family)).collect();
            words.extend((0..draw.0.below(2)).map(|_| draw.statement()));
            words.push(draw.verdict(next));
            words.join(" ") + "\n"
        };
        (0..1 + self.0.below(4)).map(|_| rule(self)).collect()
    }

    fn link(&mut self) -> String {
        self.pick("cni0|cni0|ens3|ens3|lo|docker0|veth0")
    }

    fn net(&mut self) -> String {
        self.pick(
            "A.0/24|A.2|A.3|A.1|192.168.1.0/24|192.168.1.1|192.168.1.7|198.51.100.0/24|0.0.0.0/1|128.0.0.0/1|@nets",
        )
    }

    fn condition(&mut self, family: &str) -> String {
        let is = self.is();
        if family != "ip" && self.0.once_in(8) {
            let side = self.pick("saddr|daddr");
            let net =
                self.pick("fd00:207:1::/64|fd00:207:1::2|fd00:1::/64|fd00:1::1|2001:db8::/32|::/1|fe80::/10|ff02::/16");
            return format!("ip6 {side} {is}{net}");
        }
        if family == "arp" {
            return self.pick("arp operation request|arp operation reply|arp htype 1|meta length < 1000");
        }
        match self.0.below(22) {
            0 | 1 => format!("iifname {is}{}", self.link()),
            2 if family != "netdev" => format!("oifname {is}{}", self.link()),
            3 | 4 => format!("ip saddr {is}{}", self.net()),
            5 | 6 => format!("ip daddr {is}{}", self.net()),
            7 => format!("meta l4proto {is}{}", self.any_of("icmp|tcp|udp|ipv6-icmp|sctp")),
            8 => format!("tcp dport {is}{}", self.any_of("80|443|8080|22|1-79|1024-65535")),
            9 => format!("udp dport {is}{}", self.any_of("53|67|1024-65535")),
            10 => format!("th dport {is}{}", self.pick("@ports|53|80|{ 1-1023 }")),
            11 if self.0.once_in(2) => {
                let kinds = "echo-request|echo-reply|nd-neighbor-solicit|nd-neighbor-advert|nd-router-advert";
                format!("icmpv6 type {is}{}", self.any_of(kinds))
            }
            11 => format!("icmp type {is}{}", self.any_of("echo-request|echo-reply|destination-unreachable")),
            12 => format!("ct state {is}{}", self.any_of("new|established|related|invalid|untracked")),
            13 => self.pick("ct status dnat|ct status snat|ct status confirmed|ct direction reply|ct direction original"),
            14 => format!("ct original {} {is}{}", self.pick("ip saddr|ip daddr"), self.pick("A.0/24|192.168.1.1|198.51.100.9|0.0.0.0/1")),
            15 => format!("meta mark {is}{}", self.pick("0|1|0x10-0xff|and 0xff == 0")),
            16 => format!("meta pkttype {is}{}", self.pick("host|broadcast|multicast|other")),
            17 => format!("fib {} {is}{}", self.pick("daddr type|saddr type|daddr . iif type"), self.any_of("local|unicast|broadcast")),
            18 => self.pick("fib saddr oif missing|fib saddr . iif oif exists|fib saddr oif cni0|rt nexthop 192.168.1.1|rt classid 7"),
            19 => format!("meta protocol {is}{}", self.pick("ip|ip6|arp")),
            20 => self.pick("tcp flags syn / syn,ack|tcp flags & (fin|syn|rst|ack) == syn|ip dscp cs0|ip frag-off & 0x1fff == 0|ip version 4|meta length 20-1500"),
            _ => format!("meta l4proto . th dport {is}{}", self.any_of("tcp . 80|tcp . 443|tcp . 8080|udp . 53|icmp . 0")),
        }
    }

    fn statement(&mut self) -> String {
        self.pick(
            "counter|meta mark set 1|meta mark set meta mark or 0x20|ct mark set 7|limit rate 10000/second|limit rate over 100000/second
            |meta priority set 1:2|quota over 10 gbytes|notrack|add @seen { ip saddr limit rate 1000/second }|meta nftrace set 1|ct count over 5000",
        )
    }

    fn end(&mut self) -> String {
        self.pick("accept|drop|continue|return")
    }

    fn verdict(&mut self, next: &[String]) -> String {
        let to = if next.is_empty() { "accept".to_owned() } else { self.0.pick(next).clone() };
        let jump = |word: &str| if next.is_empty() { "accept".to_owned() } else { format!("{word} {to}") };
        match self.0.below(16) {
            0..=3 => "accept".to_owned(),
            4..=6 => "drop".to_owned(),
            7 => self.pick(
                "reject|reject with tcp reset|reject with icmpx admin-prohibited|reject with icmp host-unreachable",
            ),
            8 => "return".to_owned(),
            9 | 10 => jump("jump"),
            11 => jump("goto"),
            12 => self.pick("queue num 7|queue num 7 bypass|queue flags bypass to 0-3"),
            13 => self.pick("iifname vmap @ways|oifname vmap @ways"),
            14 => {
                let (one, other) = (self.end(), self.end());
                self.pick("ct state vmap { new : X, established : Y }|meta l4proto vmap { tcp : X, icmp : Y }|tcp dport vmap { 80 : X, 443 : Y }|ip protocol vmap { udp : X }")
                    .replace('X', &one)
                    .replace('Y', &other)
            }
            _ => "continue".to_owned(),
        }
    }
}

/// A node with two containers, servers at the ends of each way, and another machine.
struct Drawn {
    sick: Sick,
    web: Container,
    _other: Container,
    families: Vec<Addresses>,
    _servers: Vec<TcpListener>,
}

/// Answers what it gets, until nothing has come for a minute.
fn echo(place: &Namespace, at: IpAddr) {
    let socket = place.enter(|| UdpSocket::bind((at, 53))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            socket.send_to(&buffer[..length], from).ok();
        }
    });
}

fn connects(place: &Namespace, to: IpAddr, port: u16) -> bool {
    place.enter(|| TcpStream::connect_timeout(&SocketAddr::new(to, port), WITHIN).is_ok())
}

fn is_answered(place: &Namespace, to: IpAddr) -> bool {
    let ask = || {
        let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
        socket.set_read_timeout(Some(WITHIN / 2))?;
        socket.connect((to, 53))?;
        socket.send(b"?")?;
        if socket.recv(&mut [0; 8]).is_err() {
            socket.send(b"?")?;
            socket.recv(&mut [0; 8])?;
        }
        Ok::<_, std::io::Error>(())
    };
    place.enter(|| ask().is_ok())
}

/// What passes of a family. `out`: from the container to another machine; `port`: from there to the container's port of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Truth {
    out: [bool; 4],
    port: bool,
    among: bool,
    from_node: [bool; 3],
    to_node: [bool; 2],
}

impl Truth {
    fn is_cut_off(&self) -> bool {
        !self.out.contains(&true) || !self.port
    }

    fn is_whole(&self) -> bool {
        !self.out.contains(&false) && self.port && self.among && !self.from_node.contains(&false)
    }
}

/// The addresses of a family: the container's, the other one's, its gateway's, the node's, and the other machine's.
type Addresses = [IpAddr; 5];

impl Drawn {
    fn new(has_ipv6: bool) -> Self {
        let sick = Sick::new();
        let ipam = if has_ipv6 { sick.both_families() } else { sick.tour.host_local() };
        sick.office(&json!([{"type": "bridge", "isDefaultGateway": true, "ipMasq": true, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": true}}]));
        sick.outside.add_address("eth0", "198.51.100.9/32");
        sick.outside
            .enter(|| sh("for net in fd00:1::1/64 2001:db8::9/128; do ip address add $net dev eth0 nodad; done"));
        let web = sick.add("office", "web", Some(8080));
        let other = sick.add("office", "other", None);
        let address =
            |last: u8, v6: &str| -> [IpAddr; 2] { [sick.tour.address(last).parse().unwrap(), v6.parse().unwrap()] };
        let fixed = |v4: &str, v6: &str| -> [IpAddr; 2] { [v4.parse().unwrap(), v6.parse().unwrap()] };
        let all = [
            address(2, "fd00:207:1::2"),
            address(3, "fd00:207:1::3"),
            address(1, "fd00:207:1::1"),
            fixed("192.168.1.7", "fd00:1::7"),
            fixed("198.51.100.9", "2001:db8::9"),
        ];
        let families = if has_ipv6 { 2 } else { 1 };
        let families: Vec<Addresses> = (0..families).map(|family| all.map(|of| of[family])).collect();
        let places = [web.namespace(), &sick.outside, sick.tour.node.host()];
        for [own, _, gateway, _, far] in &families {
            places[0].ping(*gateway);
            // An answer comes from the address that was asked.
            [(0, own), (1, far), (2, gateway)].into_iter().for_each(|(place, at)| echo(places[place], *at));
        }
        let ports = [(0, 80), (1, 80), (1, 443)];
        let servers = ports.map(|(place, port)| places[place].enter(|| TcpListener::bind(("::", port)).unwrap()));
        let drawn = Self { web, _other: other, families, _servers: servers.into(), sick };
        drawn.web.namespace().wait_for("all passes", |_| drawn.truth().iter().all(Truth::is_whole));
        drawn
    }

    fn truth(&self) -> Vec<Truth> {
        self.families.iter().map(|addresses| self.truth_of(*addresses)).collect()
    }

    fn truth_of(&self, [web, other, gateway, node, far]: Addresses) -> Truth {
        let (inside, outside, host) = (self.web.namespace(), &self.sick.outside, self.sick.tour.node.host());
        std::thread::scope(|scope| {
            let out = [
                scope.spawn(move || inside.pings(far, WITHIN)),
                scope.spawn(move || connects(inside, far, 443)),
                scope.spawn(move || connects(inside, far, 80)),
                scope.spawn(move || is_answered(inside, far)),
            ];
            let port = scope.spawn(move || connects(outside, node, 8080));
            let among = scope.spawn(move || inside.pings(other, WITHIN));
            let from_node = [
                scope.spawn(move || host.pings(web, WITHIN)),
                scope.spawn(move || connects(host, web, 80)),
                scope.spawn(move || is_answered(host, web)),
            ];
            let to_node =
                [scope.spawn(move || inside.pings(gateway, WITHIN)), scope.spawn(move || is_answered(inside, gateway))];
            Truth {
                out: out.map(|it| it.join().unwrap()),
                port: port.join().unwrap(),
                among: among.join().unwrap(),
                from_node: from_node.map(|it| it.join().unwrap()),
                to_node: to_node.map(|it| it.join().unwrap()),
            }
        })
    }

    /// Gives nft a ruleset, which it may refuse.
    fn takes(&self, ruleset: &str) -> bool {
        let mut nft = Command::new("nft");
        let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        nft.stdin.take().unwrap().write_all(ruleset.as_bytes()).unwrap();
        let mut said = String::new();
        nft.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        nft.wait().unwrap().success()
    }
}

/// `None`: what passes is not the same each time.
fn disagreement(seed: u64) -> Option<Option<String>> {
    // IPv6 beside IPv4 on every second node of each part.
    let drawn = Drawn::new(seed % 8 > 3);
    let mut draw = Draw(Random::new(seed, "rules"));
    let ruleset = loop {
        let ruleset = drawn.sick.tour.with_addresses(&draw.ruleset());
        if drawn.takes(&ruleset) {
            break ruleset;
        }
    };
    // What is known of neighbours hides rules that keep them from being asked.
    let places = [drawn.web.namespace(), &drawn.sick.outside, drawn.sick.tour.node.host()];
    places.iter().for_each(|place| place.enter(|| sh("ip neigh flush all")));
    let before = drawn.truth();
    let (exit, findings) = drawn.sick.doctor();
    if drawn.truth() != before {
        return None;
    }
    let expected: &[i32] = match () {
        () if before.iter().any(Truth::is_cut_off) => &[ERROR],
        () if !before.iter().all(Truth::is_whole) => &[WARNING, ERROR],
        // An administrator may mean to keep the node from containers.
        () if before.iter().any(|it| it.to_node.contains(&false)) => &[0, WARNING],
        () => &[0],
    };
    let is_right = expected.contains(&exit);
    eprintln!("seed {seed}: {before:?}, doctor {exit}");
    Some(
        (!is_right)
            .then(|| format!("seed {seed}: {before:?}, and doctor ends with {exit}: {:#}\n{ruleset}", json!(findings))),
    )
}

/// Some nodes at a time.
#[test]
fn a_node_with_random_rules_has_the_verdict_of_its_packets() {
    let seeds = std::env::var("DOCTOR_SEEDS").ok().and_then(|text| {
        let (first, end) = text.split_once("..")?;
        Some(first.parse().ok()?..end.parse().ok()?)
    });
    let seeds = seeds.unwrap_or(SEEDS);
    let count = seeds.clone().count();
    let found: Vec<Option<String>> = std::thread::scope(|scope| {
        let parts = [0, 1, 2, 3].map(|part| {
            let mine = seeds.clone().filter(move |seed| seed % 4 == part);
            scope.spawn(|| mine.filter_map(disagreement).collect::<Vec<_>>())
        });
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    assert!(found.len() * 4 >= count * 3, "only {} of {count} nodes are steady", found.len());
    let wrong: Vec<String> = found.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} of {count}\n{}", wrong.len(), wrong.join("\n"));
}
