//! host-local's reservations, by which an address shows whose it is where no mark does. Only for links and rules without a
//! mark, so no usual call reads them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cni_spec::{Attachment, ConfObject, json};
use ipnetwork::IpNetwork;
use netops::file::read_plain;

/// Where host-local keeps them if the config names no other folder.
const DATA_DIR: &str = "/var/lib/cni/networks";

/// A number of bytes above what a container's ID and an interface's name take.
const FILE_BYTES_MAX: u64 = 4096;

/// host-local's reservations on the node, in a folder for each network.
#[derive(Debug, Clone)]
pub struct Reserved {
    data_dir: PathBuf,
    /// The subnets that the config has host-local give addresses of.
    subnets: Vec<IpNetwork>,
}

/// The owner of an address, from an attachment's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Own,
    OtherInterface,
    OtherContainer,
    /// An attachment to another network, where the address may be another one of the same digits.
    OtherNetwork,
}

impl Reserved {
    /// The reservations in the folder that a network's config names. Chained plugins have no key `ipam`, and use the default
    /// folder.
    pub fn of(object: &ConfObject) -> Self {
        let named = json::find::<String>(object.value(), &["ipam", "dataDir"]).ok().flatten();
        let data_dir = named.filter(|dir| !dir.is_empty()).unwrap_or_else(|| DATA_DIR.to_owned());
        let ipam = json::member(object.value(), "ipam");
        let sets = ipam.and_then(|ipam| json::member(ipam, "ranges")?.as_array()).into_iter().flatten();
        let ranges = sets.filter_map(|set| set.as_array()).flatten();
        let subnet = |range| json::member(range, "subnet")?.as_str()?.parse().ok();
        Self { data_dir: data_dir.into(), subnets: ipam.into_iter().chain(ranges).filter_map(subnet).collect() }
    }

    /// Whether host-local gives such addresses in this network.
    pub(crate) fn may_have_given(&self, addresses: &[IpAddr]) -> bool {
        addresses.iter().all(|address| self.subnets.iter().any(|subnet| subnet.contains(*address)))
    }

    /// The owner of the address; `None`: the address has none, or its file cannot be read. A reservation in the attachment's
    /// network tells more than one in another network, which is read only without the former.
    pub fn holder(&self, attachment: &Attachment, address: IpAddr) -> Option<Holder> {
        let holder_in = |folder: &Path| {
            let bytes = read_plain(&folder.join(address.to_string()), FILE_BYTES_MAX).ok()?;
            holder_in(str::from_utf8(&bytes).ok()?, attachment)
        };
        let own = self.data_dir.join(attachment.network.as_str());
        holder_in(&own).or_else(|| {
            let folders = std::fs::read_dir(&self.data_dir).ok()?.flatten().map(|entry| entry.path());
            let is_held = folders.filter(|folder| *folder != own).any(|folder| holder_in(&folder).is_some());
            is_held.then_some(Holder::OtherNetwork)
        })
    }

    /// The addresses of the container's other interfaces on this network. Reads the whole folder.
    pub fn of_other_interfaces(&self, attachment: &Attachment) -> Vec<IpAddr> {
        let folder = std::fs::read_dir(self.data_dir.join(attachment.network.as_str()));
        let names = folder.into_iter().flatten().flatten().map(|entry| entry.file_name());
        let addresses = names.filter_map(|name| name.to_str()?.parse().ok());
        addresses.filter(|address| self.is_of_other_interface(attachment, *address)).collect()
    }

    /// Whether the address is of another interface of the container on this network.
    pub(crate) fn is_of_other_interface(&self, attachment: &Attachment, address: IpAddr) -> bool {
        self.holder(attachment, address) == Some(Holder::OtherInterface)
    }
}

/// The holder that a reservation's file names. Files of the older form name no interface.
fn holder_in(text: &str, attachment: &Attachment) -> Option<Holder> {
    let mut lines = text.lines().map(str::trim);
    let container = lines.next().filter(|line| !line.is_empty())?;
    let ifname = lines.next().filter(|line| !line.is_empty());
    Some(match ifname {
        _ if container != attachment.container_id.as_str() => Holder::OtherContainer,
        Some(ifname) if ifname != attachment.ifname.as_str() => Holder::OtherInterface,
        Some(_) | None => Holder::Own,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DEL would wait for a writer of the pipe.
    #[test]
    fn a_pipe_among_the_reservations_names_no_owner() {
        let data_dir = std::env::temp_dir().join(format!("reserved-{}", std::process::id()));
        let folder = data_dir.join("net");
        std::fs::create_dir_all(&folder).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(folder.join("10.7.0.2")).status().unwrap().success());
        let attachment = Attachment::parse("net", "c1", "eth0").unwrap();
        let reserved = Reserved { data_dir: data_dir.clone(), subnets: Vec::new() };
        assert_eq!(reserved.holder(&attachment, "10.7.0.2".parse().unwrap()), None);
        std::fs::remove_dir_all(data_dir).unwrap();
    }

    #[test]
    fn a_file_names_the_container_and_since_some_versions_its_interface() {
        let attachment = Attachment::parse("net", "c1", "eth0").unwrap();
        let seen = |text: &str| holder_in(text, &attachment);
        for own in ["c1\r\neth0", "c1\neth0\n", "c1", "c1\r\n"] {
            assert_eq!(seen(own), Some(Holder::Own), "{own:?}");
        }
        assert_eq!(seen("c1\r\neth1"), Some(Holder::OtherInterface));
        assert_eq!(seen("c2\r\neth0"), Some(Holder::OtherContainer));
        assert_eq!(seen("c2"), Some(Holder::OtherContainer));
        assert_eq!(seen(""), None);
    }
}
