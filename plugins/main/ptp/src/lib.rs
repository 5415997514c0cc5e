//! The ptp plugin: a veth between the node and each container, without a bridge. The node routes.
//!
//! Start at [`plan`]: it says what an attachment is on the node. The driver in crate `interface` makes it so, compares,
//! and removes.

use cni_spec::{AddResult, CniError};
use interface::{AddOrCheck, InterfacePlugin, Ipam, LinkKind, alias, status};
use netops::link::{self, Kind, Link};
use netops::{Kernel, OpError, addr};

pub mod conf;
pub mod plan;
pub mod step;

pub use conf::Conf;

use plan::Plan;
use step::{Own, State};

pub struct Ptp;

impl InterfacePlugin for Ptp {
    const NAME: &'static str = "ptp";
    const LINK: LinkKind = LinkKind::Veth;
    const FILTERS: bool = true;
    // As the reference's.
    const LINK_BEFORE_IPAM: bool = false;
    const IPAM: Ipam = Ipam::Required;
    type Conf = Conf;
    type Removal = ();
    type State = State;
    type Step = Own;

    fn observe(_: &AddOrCheck<'_>, _: &Conf) -> Result<State, CniError> {
        Ok(State::default())
    }

    fn plan(call: &AddOrCheck<'_>, keys: &Conf, _: &State, lease: Option<AddResult>) -> Result<Plan, CniError> {
        plan::plan(keys, call.attachment, lease)
    }

    /// The veths without a mark that may be the reference's: their attachments and networks are not known.
    fn list_unmarked((): &()) -> Result<Vec<Link>, OpError> {
        let host = Kernel::host()?;
        let mut unmarked = Vec::new();
        for link in link::list(&host, None)?.into_iter().filter(may_be_the_references) {
            let addresses = addr::list(&host, &link)?;
            let is_gateway = addresses.iter().any(|address| {
                let prefix_max = if address.net.is_ipv4() { 32 } else { 128 };
                address.net.prefix() == prefix_max
            });
            if is_gateway {
                unmarked.push(link);
            }
        }
        Ok(unmarked)
    }

    fn gateway_link(_: &Conf) -> Option<String> {
        Some("default".to_owned())
    }

    fn status(conf: &Conf, search_path: &str) -> Result<(), CniError> {
        let what = format!("veth{}", status::mtu_word(conf.mtu_bytes));
        status::try_out(&what, |net| link::create_veth(net, &status::trial_veth(conf.mtu_bytes)).map(drop))?;
        status::probe_filter(conf.masquerade.as_ref(), false, search_path)
    }
}

/// Whether a link of the node looks like the host's end of the reference's: `veth` and 8 hexadecimal digits, the other end in
/// another namespace, a port of nothing.
fn may_be_the_references(link: &Link) -> bool {
    let is_named = link.name.strip_prefix("veth").is_some_and(|digits| {
        digits.len() == 8 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    });
    let is_alone = link.kind == Kind::Veth && link.peer_netns_id.is_some() && link.master.is_none();
    is_named && is_alone && !alias::is_marked(link)
}
