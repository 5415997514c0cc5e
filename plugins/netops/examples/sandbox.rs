//! Runs a command where it reaches one address, which is the node's, and nothing else:
//!
//!     sandbox COMMAND [WORD]...
//!
//! No child process but the command. Its namespace, the pair of links and the rules end with it.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, ExitCode};

use ipnetwork::IpNetwork;
use netops::link::{self, Settings, Target, Veth};
use netops::nft::{self, BaseChain, Change, Cmp, Expr, Family, Hook, Nft, Side, Table, Transaction, Verdict};
use netops::route::{self, Route};
use netops::{Kernel, Netns, addr, link_removal};

const NODE: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
const SANDBOX: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 2);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [program, words @ ..] = words.as_slice() else { return Err("usage: sandbox COMMAND [WORD]...".into()) };
    let (node, netns) = (Kernel::host()?, Netns::create()?);
    let up = Settings { up: Some(true), ..Settings::default() };
    // With an end in the namespace the other one ends, too: a killed sandbox leaves no link.
    let pair = Veth { up: true, peer_netns: Some(&netns), ..Veth::new("sandbox0", "eth0") };
    let sandbox0 = link::create_veth(&node, &pair)?;
    let status = attach(&node, &netns, &sandbox0, &up).and_then(|()| {
        // Threads that start a program do so in the namespace that they are in.
        Ok(netns.run(|| Command::new(program).args(words).status())??)
    });
    // Starts no process, and waits until the kernel has freed the pair.
    let left = link_removal::remove_all_by(&node, &[sandbox0]);
    left.iter().for_each(|left| eprintln!("sandbox: {}", left.error));
    Ok(ExitCode::from(status?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Gives both ends their addresses, and the namespace its route and its rules.
fn attach(node: &Kernel, netns: &Netns, sandbox0: &link::Link, up: &Settings) -> Result<(), Box<dyn Error>> {
    let inside = Kernel::in_netns(netns)?;
    let net = |address: Ipv4Addr| IpNetwork::new(address.into(), 24);
    node.run(addr::add(sandbox0, &net(NODE)?.into()))?;
    link::set_and_get(&inside, &Target::named("lo"), up)?;
    let eth0 = link::set_and_get(&inside, &Target::named("eth0"), up)?;
    let default = Route::new("0.0.0.0/0".parse()?, Some(NODE.into()), Some(eth0.index));
    inside.run_all(vec![addr::add(&eth0, &net(SANDBOX)?.into()), route::add(&default)])?;
    Nft::in_netns(netns)?.commit(&only_to([NODE.into(), Ipv4Addr::LOCALHOST.into()]))?;
    Ok(())
}

/// Rules that drop what is sent to other addresses than these.
fn only_to(addresses: [IpAddr; 2]) -> Transaction {
    let table = Table::new(Family::Inet, "sandbox");
    let mut output = table.chain("output");
    output.base = Some(BaseChain::filter(Hook::Output));
    let accepted = addresses.map(|address| {
        let to = nft::address_in(Side::Destination, Cmp::Eq, address.into());
        output.rule([nft::nfproto_is(address).to_vec(), to, vec![Expr::Verdict(Verdict::Accept)]].concat())
    });
    let rules = accepted.into_iter().chain([output.rule(vec![Expr::Counter, Expr::Verdict(Verdict::Drop)])]);
    let mut changes = vec![Change::EnsureTable(table), Change::EnsureChain(output)];
    changes.extend(rules.map(Change::AppendRule));
    Transaction::new(changes)
}
