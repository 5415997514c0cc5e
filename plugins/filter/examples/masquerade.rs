//! Masquerades two attachments, as an interface plugin does at ADD, and prints the rules that the network has: after both ADDs, after a GC
//! that keeps the second one, and after its DEL.
//!
//! The rules are in a namespace that ends with this program.

use std::io::{self, Write};

use cni_filter::{AllRules, Backend, Filter, Names, RemovalHints, gc, remove_all};
use ipnetwork::IpNetwork;
use netops::{Netns, OpError};

/// Where iptables is looked for, which need not be there: rules are written without it.
const PROGRAMS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
const NETWORK: &str = "office";

fn main() -> Result<(), OpError> {
    Netns::run_in_new(masquerade)?
}

fn masquerade() -> Result<(), OpError> {
    let names = |container| Names { network: NETWORK, container, ifname: "eth0" };
    let address = |text: &str| text.parse::<IpNetwork>().map_err(|why| OpError::state("read", text, why.to_string()));
    let mut filter = Filter::open(PROGRAMS)?;
    filter.add_masquerade(Backend::Nftables, names("c1"), &[address("10.1.0.5/24")?])?;
    filter.add_masquerade(Backend::Nftables, names("c2"), &[address("10.1.0.6/24")?, address("fd00::6/64")?])?;
    print("after both ADDs")?;

    // Rules of the network that belong to no attachment of the list go; other networks' rules are not looked at.
    let valid = [names("c2")];
    report(gc(NETWORK, &valid[..], PROGRAMS));
    print("after GC")?;

    // DEL needs no result, no namespace and no record: each rule names its attachment. Repeated, it finds nothing, which is no error.
    for _ in 0..2 {
        report(remove_all(names("c2"), RemovalHints::default()));
    }
    print("after DEL")
}

fn print(when: &str) -> Result<(), OpError> {
    let mut lines = vec![format!("{when}:")];
    lines.extend(AllRules::read(PROGRAMS)?.of(NETWORK).iter().map(|noted| format!("  {}", noted.object)));
    writeln!(io::stdout(), "{}", lines.join("\n")).map_err(|error| OpError::io("write", "stdout", &error))
}

fn report(errors: Vec<OpError>) {
    errors.iter().for_each(|error| eprintln!("masquerade: {error}"));
}
