//! The attachment as prevResult describes it. That is what another process says: what it names is looked at on the node before
//! anything is done with it.

use cni_spec::{AddResult, Attachment, CniError, Code, IfName, Interface, Ip};
use interface::sides::Sides;
use netops::link::{self, Kind, Link};
use netops::veth_peer;
use skel::NetnsPath;

use interface::check::differs;
use interface::failed;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    pub result: AddResult,
    ifname: String,
    place: Option<usize>,
}

impl Attached {
    /// The attachment of this name. Of several interfaces of the name, those in `netns` are preferred, and then the last,
    /// as an earlier result that was passed on comes before.
    pub fn new(result: AddResult, ifname: &IfName, netns: Option<&NetnsPath>) -> Self {
        let ifname = ifname.as_str();
        let named = |entry: &Interface| entry.name == ifname && !entry.sandbox.is_empty();
        let here = |entry: &Interface| named(entry) && netns.is_some_and(|netns| entry.sandbox == netns.as_str());
        let last = |is_it: &dyn Fn(&Interface) -> bool| result.interfaces.iter().rposition(is_it);
        let place = last(&here).or_else(|| last(&named));
        Self { ifname: ifname.to_owned(), place, result }
    }

    /// The index of the container's interface in the result.
    pub fn place(&self) -> Option<usize> {
        self.place
    }

    pub fn interface(&self) -> Option<&Interface> {
        self.result.interfaces.get(self.place?)
    }

    /// The container's interface.
    /// Errors: code 7: the result has none of this name with a sandbox.
    pub fn get_interface(&self) -> Result<&Interface, CniError> {
        self.interface().ok_or_else(|| {
            let msg = format!("cannot use prevResult: it has no interface {} with a sandbox", self.ifname);
            CniError::new(Code::INVALID_CONFIG, msg)
                .detail("The plugin that makes the interface has to stand before this one in the list.")
        })
    }

    /// The addresses of the container's interface, and those of which the result does not say whose they are: with no index,
    /// or one that is beyond the interfaces, as in the reference.
    pub fn ips(&self) -> impl Iterator<Item = &Ip> {
        let is_anothers = |index: usize| Some(index) != self.place && index < self.result.interfaces.len();
        self.result.ips.iter().filter(move |ip| !ip.interface.is_some_and(is_anothers))
    }

    /// As [`Attached::ips`], and where the result's interface of this name has no sandbox, its addresses: the reference's sbr asks for
    /// the name alone.
    pub fn ips_by_name(&self) -> impl Iterator<Item = &Ip> {
        let is_named = |index: usize| self.result.interfaces.get(index).is_some_and(|entry| entry.name == self.ifname);
        let by_name =
            self.result.ips.iter().filter(move |ip| self.place.is_none() && ip.interface.is_some_and(is_named));
        self.ips().chain(by_name)
    }

    /// The container's link.
    /// Errors: code 107: it is not there.
    pub fn link(&self, sides: &Sides) -> Result<Link, CniError> {
        let found = link::find(&sides.container, &self.ifname).map_err(failed)?;
        found.ok_or_else(|| {
            differs(format!("interface {} in {}", self.ifname, sides.container.place()), "it is not found")
                .detail("The plugin that makes the interface has to stand before this one in the list.")
        })
    }

    /// The host's end of the container's veth before it is made, by the result alone: for programs that show what ADD would do.
    /// Errors: code 110: the result has none.
    pub fn previewed_host_end(&self, attachment: &Attachment) -> Result<String, CniError> {
        let name = interface::host_veth::name(attachment);
        match self.result.interfaces.iter().any(|entry| entry.name == name && entry.sandbox.is_empty()) {
            true => Ok(name),
            false => {
                Err(CniError::new(Code::UNUSABLE_RESULT, format!("cannot find the host's end of {}", self.ifname))
                    .detail("Only veth interfaces, as of bridge and ptp, have one."))
            }
        }
    }

    /// The host's end of the container's veth. Each end has to name the other one, by index and namespace: a container may
    /// make a link with any index. The result has to have it, too.
    /// Errors: code 110: the interface is no veth, or its other end is not on the host, or not in the result.
    pub fn host_end(&self, sides: &Sides) -> Result<Link, CniError> {
        let link = self.link(sides)?;
        let unusable = |why: String| {
            let msg = format!("cannot find the host's end of {} in {}: {why}", self.ifname, sides.container.place());
            CniError::new(Code::UNUSABLE_RESULT, msg).detail("Only veth interfaces, as of bridge and ptp, have one.")
        };
        if link.kind != Kind::Veth {
            return Err(unusable(format!("it is a {}", link.kind)));
        }
        let end = veth_peer::find_host_end(&sides.host, &sides.container, &sides.netns, &link).map_err(failed)?;
        let end = end.ok_or_else(|| unusable("its peer is not on the host".to_owned()))?;
        let is_told = self.result.interfaces.iter().any(|entry| entry.name == end.name && entry.sandbox.is_empty());
        if is_told { Ok(end) } else { Err(unusable(format!("prevResult does not have {}", end.name))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, sandbox: &str) -> Interface {
        Interface::new(name).sandbox(sandbox)
    }

    fn attached(interfaces: Vec<Interface>, ips: &[(&str, Option<usize>)]) -> Attached {
        let ip = |(address, interface): &(&str, Option<usize>)| Ip::new(address.parse().unwrap(), None).of(*interface);
        let result = interfaces.into_iter().fold(AddResult::default(), AddResult::interface);
        let result = ips.iter().map(ip).fold(result, AddResult::ip);
        Attached::new(result, &IfName::parse("eth0").unwrap(), None)
    }

    #[test]
    fn the_attachments_interface_has_its_name_and_a_sandbox() {
        let found = attached(vec![entry("eth0", ""), entry("eth0", "/a"), entry("eth1", "/a")], &[]);
        assert_eq!(found.place(), Some(1));
        let none = attached(vec![entry("eth0", ""), entry("eth1", "/a")], &[]);
        assert_eq!(none.get_interface().unwrap_err().code, Code::INVALID_CONFIG);
    }

    #[test]
    fn its_addresses_are_those_on_it_and_those_on_no_named_interface() {
        let ips = [("10.0.0.1/24", Some(0)), ("10.0.0.2/24", Some(1)), ("10.0.0.3/24", None), ("10.0.0.4/24", Some(9))];
        let found = attached(vec![entry("veth", ""), entry("eth0", "/a")], &ips);
        let addresses: Vec<String> = found.ips().map(|ip| ip.address.to_string()).collect();
        assert_eq!(addresses, ["10.0.0.2/24", "10.0.0.3/24", "10.0.0.4/24"]);
        assert!(found.ips_by_name().eq(found.ips()));
        let found = attached(vec![entry("veth", ""), entry("eth0", "")], &ips);
        let addresses: Vec<String> = found.ips_by_name().map(|ip| ip.address.to_string()).collect();
        assert_eq!(addresses, ["10.0.0.3/24", "10.0.0.4/24", "10.0.0.2/24"]);
    }
}
