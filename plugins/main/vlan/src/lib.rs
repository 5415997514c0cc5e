//! The vlan plugin: one VLAN of an interface of the node, as a link in the container.

use cni_spec::{AddResult, CniError, ConfObject, Dns, FromConf};
use interface::conf::{self, DnsKey, invalid};
use interface::container::Options;
use interface::plan::{Compared, Create};
use interface::stacked::{self, MasterFrom, Wanted};
use interface::{AddOrCheck, InterfacePlugin, Ipam, LinkKind, NoStep, Plan, Side, Verb};
use netops::link::vlan::Vlan as Settings;
use netops::link::{Kind, Link};
use serde::Deserialize;

pub struct Vlan;

/// The largest number of a VLAN; 4095 is reserved (IEEE 802.1Q).
const ID_MAX: u16 = 4094;

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
    vlan_id: u16,
    mtu: u16,
    link_in_container: bool,
    dns: DnsKey,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let wire: Wire = object.decode()?;
        if wire.master.is_empty() && wire.master_from.is_none() {
            return Err(invalid("key master is not set")
                .at_key("master")
                .detail("Name the interface whose VLAN it is, or set masterFrom."));
        }
        if wire.vlan_id > ID_MAX {
            let why = format!("VLANs are numbered 0 to {ID_MAX}");
            return Err(CniError::invalid_key("vlanId", wire.vlan_id, &why));
        }
        Ok(Self {
            master: Wanted::parse(&wire.master, wire.master_from, wire.link_in_container)?,
            settings: Settings { id: wire.vlan_id, ..Settings::default() },
            mtu_bytes: conf::mtu(wire.mtu),
            dns: wire.dns.into_dns(),
        })
    }
}

impl InterfacePlugin for Vlan {
    const NAME: &'static str = "vlan";
    const LINK: LinkKind = LinkKind::ContainerOnly("vlan");
    const IPAM: Ipam = Ipam::Required;
    type Conf = Conf;
    type Removal = ();
    /// The master, if it is known.
    type State = Option<Link>;
    type Step = NoStep<Option<Link>>;

    fn observe(call: &AddOrCheck<'_>, conf: &Conf) -> Result<Option<Link>, CniError> {
        let sides = call.sides;
        let master = conf.master.find(call)?;
        if let (Some(master), Verb::Add) = (&master, call.verb) {
            stacked::refuse_mtu_above(&master.name, master.mtu_bytes, conf.mtu_bytes)?;
            // A VLAN of a master that is down cannot be set up (ENETDOWN).
            stacked::require_up(master, if conf.master.side == Side::Host { &sides.host } else { &sides.container })?;
        }
        Ok(master)
    }

    fn plan(
        call: &AddOrCheck<'_>,
        keys: &Conf,
        master: &Option<Link>,
        lease: Option<AddResult>,
    ) -> Result<Plan<Self::Step>, CniError> {
        let mut plan = Plan::new(call.attachment, lease, keys.dns.clone());
        let lower = master.clone().map(|master| (keys.master.side, master));
        plan.push(Compared::Create(Box::new(Create {
            kind: Kind::Vlan(keys.settings),
            lower,
            mtu_bytes: keys.mtu_bytes,
            mac: None,
        })));
        plan.refuse_mtu(keys.mtu_bytes)?;
        plan.push_container(Options::default())?;
        Ok(plan)
    }

    fn status(conf: &Conf, _: &str) -> Result<(), CniError> {
        let Some(master) = conf.master.status(&Kind::Vlan(conf.settings))? else { return Ok(()) };
        stacked::refuse_mtu_above(&master.name, master.mtu_bytes, conf.mtu_bytes)
    }
}
