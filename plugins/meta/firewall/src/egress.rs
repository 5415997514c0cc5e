//! Key `egressPolicy`: what the container may send.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use chained::{AddOrCheck, Preview, Shown, Txn, failed};
use cni_filter::{Egress, Filter, Names};
use cni_spec::{CniError, Code};
use ipnetwork::IpNetwork;
use netops::link::{self, Kind, Link};

use super::{Forget, open};
use crate::conf::Conf;

/// The objects of an attachment that its policy is about.
struct Found {
    link: Link,
    is_port: bool,
    addresses: Vec<IpNetwork>,
    gateways: Vec<IpAddr>,
}

impl Found {
    fn look(call: &AddOrCheck<'_>) -> Result<Self, CniError> {
        let sides = call.sides.open()?;
        let link = call.attached.host_end(sides).map_err(|error| unenforced(error.msg))?;
        let is_port = match link.master {
            None => false,
            Some(index) => match link::find_index(&sides.host, index).map_err(failed)?.map(|master| master.kind) {
                Some(Kind::Bridge(_)) => true,
                Some(Kind::Vrf(_)) => false,
                other => {
                    let kind = other.map_or_else(|| "gone".to_owned(), |kind| format!("a {kind}"));
                    return Err(unenforced(format!("the master of {} is {kind}", link.name)));
                }
            },
        };
        let ips: Vec<_> = call.attached.ips().collect();
        let (addresses, gateways) =
            (ips.iter().map(|ip| ip.address).collect(), ips.iter().filter_map(|ip| ip.gateway).collect());
        Ok(Self { link, is_port, addresses, gateways })
    }

    fn wanted<'a>(&'a self, call: &'a AddOrCheck<'_>, conf: &'a Conf) -> Egress<'a> {
        Egress {
            attachment: Names::from(call.attachment),
            link: &self.link.name,
            is_port: self.is_port,
            addresses: &self.addresses,
            gateways: &self.gateways,
            policies: &conf.egress,
        }
    }
}

/// Refuses what would let pass everything.
fn unenforced(why: String) -> CniError {
    CniError::new(Code::UNUSABLE_RESULT, format!("cannot enforce egressPolicy: {why}"))
        .detail("It is for veth interfaces of the node itself or of one of its bridges, as bridge and ptp make them.")
}

pub(crate) fn add(call: &AddOrCheck<'_>, conf: &Conf, txn: &Txn) -> Result<(), CniError> {
    let (found, mut filter) = (Found::look(call)?, open(call.raw.search_path())?);
    let is_new = Rc::<Cell<bool>>::default();
    txn.push(Box::new(Forget {
        attachment: call.attachment.clone(),
        is_new: Rc::clone(&is_new),
        what: "egressPolicy",
        remove: Filter::remove_egress,
    }));
    is_new.set(filter.add_egress(found.wanted(call, conf)).map_err(failed)?);
    Ok(())
}

/// Returns how the ruleset differs from what [`add`] makes.
pub(crate) fn check(call: &AddOrCheck<'_>, conf: &Conf) -> Result<Option<String>, CniError> {
    let (found, mut filter) = (Found::look(call)?, open(call.raw.search_path())?);
    Ok(filter.check_egress(found.wanted(call, conf)).err().map(|error| error.to_string()))
}

pub(crate) fn preview(call: &AddOrCheck<'_>, preview: &mut Preview) -> Result<(), CniError> {
    call.attached.previewed_host_end(call.attachment).map_err(|error| unenforced(error.msg))?;
    let addresses: Vec<_> = call.attached.ips().map(|ip| ip.address.ip()).collect();
    let mut filter = open(call.raw.search_path())?;
    let commands = filter.preview_egress(Names::from(call.attachment), &addresses).map_err(failed)?;
    commands.into_iter().for_each(|(command, is_so)| preview.push(Shown::new(command).so_if(is_so)));
    Ok(())
}
