//! The ipvlan plugin: a link in the container that shares the Ethernet address of an interface of the node.
//!
//! In a chain the master may be the one interface of prevResult; without `ipam` its addresses become the link's.

use cni_spec::{AddResult, Attachment, CniError, Code, ConfObject, Dns, FromConf};
use interface::conf::{self, DnsKey, invalid};
use interface::container::Options;
use interface::plan::{Compared, Create};
use interface::result::without_loopback;
use interface::stacked::{self, MasterFrom, Wanted};
use interface::{AddOrCheck, InterfacePlugin, LinkKind, NoStep, Plan, Verb};
use netops::link::ipvlan::{Flags, Ipvlan as Settings, Mode};
use netops::link::{AnyName, Kind, Link};
use serde::Deserialize;

pub struct Ipvlan;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    /// The interface that the link is on.
    pub master: Wanted,
    pub settings: Settings,
    /// MTU in bytes; `None` is the master's.
    pub mtu_bytes: Option<u32>,
    /// Key `dns`, in place of IPAM's.
    pub dns: Option<Dns>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Wire {
    master: String,
    master_from: Option<MasterFrom>,
    mode: String,
    flag: String,
    mtu: u16,
    link_in_container: bool,
    dns: DnsKey,
}

const MODES: [(&str, Mode); 3] = [("l2", Mode::L2), ("l3", Mode::L3), ("l3s", Mode::L3s)];
const FLAGS: [(&str, Flags); 3] = [("bridge", Flags::Bridge), ("private", Flags::Private), ("vepa", Flags::Vepa)];

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let wire: Wire = object.decode()?;
        let mode = stacked::keyword("mode", &wire.mode, &MODES)?;
        let flags = stacked::keyword("flag", &wire.flag, &FLAGS)?;
        Ok(Self {
            master: Wanted::parse(&wire.master, wire.master_from, wire.link_in_container)?,
            settings: Settings { mode, flags },
            mtu_bytes: conf::mtu(wire.mtu),
            dns: wire.dns.into_dns(),
        })
    }
}

/// What the node and the chain have.
#[derive(Debug, Clone, Default)]
pub struct State {
    master: Option<Link>,
    /// The addresses of prevResult, in a chain without `ipam`.
    chained: Option<AddResult>,
}

impl InterfacePlugin for Ipvlan {
    const NAME: &'static str = "ipvlan";
    const LINK: LinkKind = LinkKind::ContainerOnly("ipvlan");
    type Conf = Conf;
    type Removal = ();
    type State = State;
    type Step = NoStep<State>;

    fn observe(call: &AddOrCheck<'_>, conf: &Conf) -> Result<State, CniError> {
        let prev = call.conf.prev_result()?;
        let chained = match call.conf.ipam {
            Some(_) => None,
            None => Some(chained_lease(call.verb, call.attachment, prev.as_ref())?),
        };
        let is_chained = conf.master.name.is_none() && conf.master.from.is_none();
        let wanted = match (&prev, call.verb) {
            (Some(prev), Verb::Add) if is_chained => {
                Wanted { name: Some(chained_master(prev)?), ..conf.master.clone() }
            }
            _ => conf.master.clone(),
        };
        let master = wanted.find(call)?;
        // The reference and the kernel accept it.
        if let (Some(master), Some(mtu)) = (&master, conf.mtu_bytes)
            && mtu > master.mtu_bytes
        {
            tracing::warn!(mtu, master = master.name, "the master's MTU is only {}", master.mtu_bytes);
        }
        Ok(State { master, chained })
    }

    fn plan(
        call: &AddOrCheck<'_>,
        keys: &Conf,
        state: &State,
        lease: Option<AddResult>,
    ) -> Result<Plan<Self::Step>, CniError> {
        let mut plan = Plan::new(call.attachment, lease.or_else(|| state.chained.clone()), keys.dns.clone());
        let lower = state.master.clone().map(|master| (keys.master.side, master));
        plan.push(Compared::Create(Box::new(Create {
            kind: Kind::Ipvlan(keys.settings),
            lower,
            mtu_bytes: keys.mtu_bytes,
            mac: None,
        })));
        plan.refuse_mtu(keys.mtu_bytes)?;
        plan.push_container(Options { announces: true, ..Options::default() })?;
        Ok(plan)
    }

    /// In a chain that gives master or addresses the result has the one interface, as the reference's, whose DEL wants one.
    fn earlier(call: &AddOrCheck<'_>, keys: &Conf) -> AddResult {
        let is_by_default = keys.master.name.is_none() && keys.master.from.is_none();
        let is_chained = is_by_default || call.conf.ipam.is_none();
        let prev = call.conf.find_prev_result().filter(|_| !is_chained);
        prev.map(without_loopback).unwrap_or_default()
    }

    /// Without key `master` a chain may have another one than the default route's, so only the kernel is asked.
    fn status(conf: &Conf, _: &str) -> Result<(), CniError> {
        let kind = Kind::Ipvlan(conf.settings);
        match (&conf.master.name, conf.master.from) {
            (None, None) => stacked::probe(&kind),
            (_, _) => conf.master.status(&kind).map(drop),
        }
    }
}

/// The one interface of an earlier plugin's result.
fn chained_master(prev: &AddResult) -> Result<AnyName, CniError> {
    let name = match prev.interfaces.as_slice() {
        [only] => AnyName::parse(&only.name).ok(),
        _ => None,
    };
    name.ok_or_else(|| {
        let names: Vec<&str> = prev.interfaces.iter().map(|entry| entry.name.as_str()).collect();
        let text = format!(
            "cannot find a master: prevResult has {} interfaces ({}), where key master is not set it must have the one \
             that is the master",
            names.len(),
            names.join(", ")
        );
        CniError::new(Code::INVALID_CONFIG, text).detail("Set key master.")
    })
}

/// The addresses and routes that an earlier plugin's result has, for a network without `ipam`. CHECK gets ADD's result,
/// where they are the container's interface's.
fn chained_lease(verb: Verb, attachment: &Attachment, prev: Option<&AddResult>) -> Result<AddResult, CniError> {
    let mut lease = prev.cloned().unwrap_or_default();
    if verb == Verb::Check {
        let is_own = |index: usize| {
            let entry = lease.interfaces.get(index);
            entry.is_some_and(|entry| entry.name == attachment.ifname.as_str() && !entry.sandbox.is_empty())
        };
        let own: Vec<bool> = lease.ips.iter().map(|ip| ip.interface.is_some_and(is_own)).collect();
        let mut own = own.into_iter();
        lease.ips.retain(|_| own.next().unwrap_or_default());
    }
    lease.interfaces.clear();
    match lease.ips.is_empty() {
        false => Ok(lease),
        true => Err(invalid("plugin ipvlan needs key ipam, or a prevResult with addresses")
            .detail("Name an address plugin by ipam.type, such as host-local.")),
    }
}
