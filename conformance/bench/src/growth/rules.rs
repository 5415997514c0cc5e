//! Rules of other containers in iptables' table `nat`, as ADD of the reference leaves them.

use std::io::Write;
use std::process::{Command, Stdio};

use testns::Node;

use crate::scene::NETWORK;

/// As many containers as `iptables-restore` can send at once without privileges over the machine.
const AT_ONCE: usize = 50;

/// Has so many attachments masqueraded.
pub(super) fn masquerade(node: &Node, count: usize) -> Result<(), String> {
    fill(node, count, "POSTROUTING", &[], |number| {
        let (chain, whose) = (format!("CNI-c{number:023x}"), comment("name", number));
        let rules = format!(
            "-A {chain} -d 10.88.0.0/16 {whose} -j ACCEPT\n\
             -A {chain} ! -d 224.0.0.0/4 {whose} -j MASQUERADE\n\
             -A POSTROUTING -s {address}/32 {whose} -j {chain}\n",
            address = address(number)
        );
        (chain, rules)
    })
}

/// Has so many host ports lead to containers, a port each.
pub(super) fn forward(node: &Node, count: usize) -> Result<(), String> {
    fill(node, count, "CNI-HOSTPORT-DNAT", &["CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SETMARK"], |number| {
        let (chain, port) = (format!("CNI-DN-{number:021x}"), 1 + number);
        let whose = comment("dnat name", number);
        let own = format!("-A {chain} -p tcp -m tcp --dport {port}");
        let rules = format!(
            "-A CNI-HOSTPORT-DNAT -p tcp {whose} -m multiport --dports {port} -j {chain}\n\
             {own} -s 10.88.0.0/16 -j CNI-HOSTPORT-SETMARK\n\
             {own} -s 127.0.0.1/32 -j CNI-HOSTPORT-SETMARK\n\
             {own} -j DNAT --to-destination {address}:80\n",
            address = address(number)
        );
        (chain, rules)
    })
}

fn comment(start: &str, number: usize) -> String {
    format!(r#"-m comment --comment "{start}: \"{NETWORK}\" id: \"crowd{number}\"""#)
}

/// Behind the addresses of the pods that are measured.
fn address(number: usize) -> String {
    format!("10.88.{}.{}", 100 + number / 250, 1 + number % 250)
}

/// Makes the rules of each container that is not there yet: `rules` has a container's chain and lines.
fn fill(
    node: &Node,
    count: usize,
    entries: &str,
    shared: &[&str],
    rules: impl Fn(usize) -> (String, String),
) -> Result<(), String> {
    let before = run(node, "iptables-save", &["-t", "nat"], "")?;
    let is_entry = |line: &&str| line.starts_with(&format!("-A {entries} ")) && line.contains("crowd");
    let there = before.lines().filter(is_entry).count();
    let all: Vec<_> = (there..count).map(rules).collect();
    for (at, part) in all.chunks(AT_ONCE).enumerate() {
        // A declared chain loses its rules.
        let missing = shared.iter().copied().filter(|_| there == 0 && at == 0);
        let own = part.iter().map(|(chain, _)| chain.as_str());
        let chains: String = missing.chain(own).map(|chain| format!(":{chain} - [0:0]\n")).collect();
        let lines: String = part.iter().map(|(_, lines)| lines.as_str()).collect();
        run(node, "iptables-restore", &["--noflush"], &format!("*nat\n{chains}{lines}COMMIT\n"))?;
    }
    Ok(())
}

fn run(node: &Node, program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("cannot make rules by {program}: {why}");
    let output = node.host().enter(|| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()))?;
        child.wait_with_output()
    });
    let output = output.map_err(|error| failed(&error))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(failed(&String::from_utf8_lossy(&output.stderr))),
    }
}
