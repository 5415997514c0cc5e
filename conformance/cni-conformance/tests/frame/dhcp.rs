//! The kit's DHCP server, asked by the reference's client.

use crate::kit::{kit, say, sum};
use std::path::Path;

const REFERENCE: &str = "/usr/lib/cni";

#[test]
fn the_reference_gets_addresses_from_the_kits_server() {
    if !Path::new(REFERENCE).join("dhcp").exists() {
        let name = "the_reference_gets_addresses_from_the_kits_server";
        return testns::skip(name, "the reference's dhcp is not installed");
    }
    let rules = ["ipam.gives-an-address", "ipam.no-address-twice"].map(|rule| ["--rule", rule]).concat();
    let said = say(kit(&[&["plugin", "--bin-dir", REFERENCE, "--only", "dhcp"], rules.as_slice()].concat()));
    said.has(0, &[&sum(5, 0, 1, 0)]);
}
