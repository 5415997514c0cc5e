//! A pod: the container of an attachment, and who has its addresses.

use std::net::IpAddr;
use std::process::{Command, Stdio};

use serde_json::Value;
use testns::{Container, Namespace, Node, Remains};

use crate::network::Network;
use crate::step::By;

/// A container that has, or may have, something of an attachment.
#[derive(Debug)]
pub(crate) struct PodInSlot {
    pub(crate) container: Container,
    pub(crate) result: Value,
    pub(crate) by: By,
    pub(crate) is_renamed: bool,
    pub(crate) has_shared_rules: bool,
    /// The virtual machine in the container, which has its addresses.
    pub(crate) machine: Option<Container>,
}

impl PodInSlot {
    pub(crate) fn new(container: Container, result: Value, by: By) -> Self {
        Self { container, result, by, is_renamed: false, has_shared_rules: false, machine: None }
    }

    /// Whether the pod's interface is no more as ADD left it: CHECK reports that, and the reference's DEL does not find it.
    pub(crate) fn is_changed(&self) -> bool {
        self.is_renamed || self.machine.is_some()
    }

    pub(crate) fn holder(&self) -> &Namespace {
        self.machine.as_ref().unwrap_or(&self.container).namespace()
    }

    /// The addresses that the node reaches by the pod's interface. A machine whose interface is gone has none.
    pub(crate) fn addresses_on_links(&self) -> Vec<IpAddr> {
        match self.machine.is_some() && self.container.namespace().find_link("eth0").is_none() {
            true => Vec::new(),
            false => self.holder().addresses().into_iter().map(|address| address.ip).collect(),
        }
    }

    pub(crate) fn leave(&self) {
        self.machine.iter().chain([&self.container]).for_each(|one| drop(one.leave(Remains::Gone)));
    }

    /// Gives its addresses, and the Ethernet address, to a virtual machine behind a bridge in its namespace, as KubeVirt does. A
    /// veth is the machine's tap.
    pub(crate) fn hand_over(&mut self, node: &Node, network: Network) {
        let (inside, machine) = (self.container.namespace(), node.container_without_probes());
        let outside = machine.namespace();
        inside.delete_addresses("eth0");
        let mac = inside.link("eth0").mac;
        inside.set_mac("eth0", "0a:00:00:00:66:01");
        inside.add_link("vmbr0", "bridge");
        inside.add_veth("tap0", outside, "eth0");
        outside.set_mac("eth0", &mac);
        ["eth0", "tap0"].iter().for_each(|port| inside.set_master(port, "vmbr0"));
        for ip in self.result["ips"].as_array().into_iter().flatten() {
            let [address, gateway] = ["address", "gateway"].map(|key| ip[key].as_str().expect("a text"));
            let family = if address.contains(':') { "-6" } else { "-4" };
            let route = |words: &[&str]| {
                let mut command = Command::new("/usr/bin/ip");
                command.args(["-n", machine.id(), family, "route", "add"]).args(words).stdin(Stdio::null());
                assert!(command.status().expect("run ip").success(), "ip route add {words:?}");
            };
            outside.add_address("eth0", &network.address_of_machine(address));
            if network.has_single_addresses() {
                route(&[gateway, "dev", "eth0"]);
            }
            route(&["default", "via", gateway, "dev", "eth0"]);
        }
        self.machine = Some(machine);
    }
}
