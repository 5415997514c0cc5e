//! The kit's DHCP server, asked by the reference's client.

use crate::run_kit::{kit, say, sum};

#[test]
fn the_reference_gets_addresses_from_the_kits_server() {
    let name = "the_reference_gets_addresses_from_the_kits_server";
    let Some(reference) = testns::reference_or_skip(name) else { return };
    let reference = reference.to_str().unwrap();
    let rules = ["ipam.gives-an-address", "ipam.no-address-twice"].map(|rule| ["--rule", rule]).concat();
    let said = say(kit(&[&["plugin", "--bin-dir", reference, "--only", "dhcp"], rules.as_slice()].concat()));
    said.has(0, &[&sum(7, 0, 0, 0)]);
}
